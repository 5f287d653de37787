"""Running the flows from a terminal, with a display that starts before Prefect does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from flows.display import Display, result, watching
from r3l.config import Config
from r3l.exploration.tally import Tally


def run_iteration(config: Config, tally: Tally, *, quiet: bool = False) -> dict[str, Any]:
    """One iteration in this process, on the Prefect server that is configured or else an ephemeral one.

    Raises:
        R3LError: whatever is wrong, before work starts where it can be known.
    """
    from flows import preflight  # settings are checked before Prefect, whose start takes seconds

    console = Console(stderr=True)
    display = Display(console, f"r3l · run {config.run} · {config.method.kind} on {config.environment.kind}", tally)
    with _shown(display, quiet):
        display.phase = "checking the settings, the policy and the tasks"
        preflight.check(config)
        display.phase = "starting Prefect"
        from flows.iterate import WATCHED, iterate

        WATCHED[config.run] = tally
        display.phase = "starting Prefect's server" if "PREFECT_API_URL" not in os.environ else "asking Prefect's server for a run"
        tally.on_first("tasks", lambda: setattr(display, "phase", "running"))
        summary = iterate(config)
    if not quiet:
        result(console, summary)
    return summary


def run_training(config: Config, iterations: int, *, quiet: bool = False) -> list[dict[str, Any]]:
    """Further iterations of a run, one after another."""
    return [run_iteration(config, Tally(), quiet=quiet) for _ in range(iterations)]


@contextlib.contextmanager
def _shown(display: Display, quiet: bool) -> Iterator[None]:
    if quiet:
        yield
        return
    with watching(display, plain=not display.console.is_terminal):
        yield
