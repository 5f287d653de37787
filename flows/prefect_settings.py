"""Prefect's own settings, as this project wants them. Imported before Prefect is; a variable that is already set wins."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULTS = {
    # An ephemeral server can need a minute on a busy laptop; Prefect gives up after 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "240",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # SQLite answers parallel task runs with "database is locked" noise below this.
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_TIMEOUT": "60",
    # What the server answers while its database restarts: asked again for a minute.
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
    "TOKENIZERS_PARALLELISM": "false",
    # Spinning threads starve the environment workers on few cores: a 500-token prefill took 24 s instead of 0.7 s.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
}


def apply(quiet: bool = False) -> None:
    """Set the defaults. `quiet` keeps Prefect's own log lines off the terminal, where the live display stands."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if "PREFECT_API_URL" not in os.environ and "PREFECT_PROFILES_PATH" not in os.environ:
        os.environ.setdefault("PREFECT_HOME", str(Path(".prefect").absolute()))
    if quiet:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
