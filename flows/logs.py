"""The run's own log: shown in the Prefect UI where there is a run, on the logger `r3l.flows` elsewhere."""

from __future__ import annotations

import logging

from prefect import get_run_logger
from prefect.exceptions import MissingContextError


def log() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("r3l.flows")
