"""What every test has: a cache folder of its own session, so that none is spared work by what this machine
remembers."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R3L_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
