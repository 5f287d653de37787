"""Running the flows from a terminal, with a display that starts before Prefect does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from flows.display import Display, evaluated, result, watching
from flows.pace import TESTING, expected
from r3l.config import Config
from r3l.evaluation.benchmarks import pose
from r3l.exploration.tally import Tally


def run_iteration(config: Config, *, quiet: bool = False) -> dict[str, Any]:
    """One iteration in this process, on the Prefect server that is configured or else an ephemeral one.

    Raises:
        R3LError: whatever is wrong, before work starts where it can be known.
    """
    with displayed(config, quiet) as display:
        from flows.iterate import iterate

        watch(display, config)
        summary: dict[str, Any] = iterate(config)
    if not quiet:
        result(display.console, summary)
    return summary


def run_training(config: Config, iterations: int, *, quiet: bool = False) -> list[dict[str, Any]]:
    """Further iterations of a run, one after another; each one's figures are printed above the display."""
    with displayed(config, quiet) as display:
        from flows.train import LISTENERS, train

        def heard(summary: dict[str, Any] | None) -> None:
            if summary is None:
                watch(display, config)
            elif not quiet:
                result(display.console, summary, ask=False)

        LISTENERS[config.run] = heard
        return list(train(config, iterations))


def run_evaluation(config: Config, *, quiet: bool = False) -> dict[str, Any]:
    """Test episodes with a policy of the run."""
    with displayed(pose(config).config, quiet, training=False) as display:
        from flows.evaluate import evaluate
        from flows.iterate import WATCHED

        WATCHED[config.run] = display.tally
        display.phase = "evaluating"
        display.planned = {TESTING: config.evaluation.tasks * config.evaluation.repeats}
        found: dict[str, Any] = evaluate(config)
    if not quiet:
        evaluated(display.console, found)
    return found


def watch(display: Display, config: Config) -> None:
    """Show the next iteration of the run from its beginning."""
    from flows.iterate import WATCHED

    display.tally = WATCHED[config.run] = Tally()
    display.planned = expected(config)
    display.phase = "starting Prefect's server" if "PREFECT_API_URL" not in os.environ else "asking Prefect's server for a run"
    display.tally.on_first("tasks", lambda: setattr(display, "phase", "running"))


@contextlib.contextmanager
def displayed(config: Config, quiet: bool, training: bool = True) -> Iterator[Display]:
    """A display, after the settings were checked: that comes before Prefect, whose start takes seconds."""
    from flows import preflight

    display = Display(Console(stderr=True), f"r3l · run {config.run} · {config.method.kind} on {config.environment.kind}", Tally())
    with contextlib.nullcontext() if quiet else watching(display, plain=not display.console.is_terminal):
        display.phase = "checking the settings, the policy and the tasks"
        preflight.check(config, training)
        display.phase = "starting Prefect"
        yield display
