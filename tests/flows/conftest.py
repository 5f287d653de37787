"""What the tests of flows share: a Prefect server in a folder of its own, the wheel, an environment that has it."""

import os

import pytest

from flows import prefect_settings
from tests.support.installed import build_wheel, fresh_environment


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory):
    """An ephemeral server on a database in a temporary folder; `PREFECT_HOME` of the machine is left alone."""
    os.environ["PREFECT_HOME"] = str(tmp_path_factory.mktemp("prefect"))
    prefect_settings.apply(quiet=True)
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=240):
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built from what git would give a stranger."""
    return build_wheel(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The folder of the programs of an environment with no r3l but the wheel's."""
    return fresh_environment(tmp_path_factory.mktemp("environment"), wheel)
