"""A Prefect server for the tests of flows: one for the whole session, in a folder of its own."""

import os

import pytest

from flows import prefect_settings


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory):
    """An ephemeral server on a database in a temporary folder; `PREFECT_HOME` of the machine is left alone."""
    os.environ["PREFECT_HOME"] = str(tmp_path_factory.mktemp("prefect"))
    prefect_settings.apply(quiet=True)
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=240):
        yield
