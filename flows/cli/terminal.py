"""Running the flows from a terminal, with a display that starts before Prefect does."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from flows.cli.screen.console import screen
from flows.cli.screen.display import Display, clock, watching
from flows.cli.screen.eta import expected_attempts
from flows.cli.screen.figures import curve, print_scores, result, trend
from flows.serving import tied
from r3l.config import Config
from r3l.errors import Interrupted
from r3l.evaluation.benchmarks import pose
from r3l.evaluation.score import Goal, Scores, check_return
from r3l.exploration.progress import Progress
from r3l.pipeline.summary import Summary, history
from r3l.pipeline.tools import Tools
from r3l.store.stage import Store


def run_iteration(config: Config, *, quiet: bool = False, verbose: bool = False, prefect: bool = True) -> Summary:
    """Run one iteration in this process, on the configured Prefect server or an ephemeral one, or without Prefect. The
    result is its summary.

    Raises:
        R3LError: whatever is wrong, before work starts where it can be known.
    """
    with show_display(config, quiet, prefect=prefect) as display, closing(Tools()) as tools:
        begin(tools, config)
        progress = next_iteration(display, config)
        if prefect:
            from flows import iterate

            with on_prefect():
                summary = iterate.with_watcher(progress, tools=tools)(config)
        else:
            from r3l.pipeline.iteration import iterate_directly

            display.phase = "starting the engine"
            summary = iterate_directly(config, Store.open(config.store.root), tools, progress)
    if not quiet:
        result(display.console, summary, verbose=verbose)
    return summary


def run_training(
    config: Config,
    iterations: int,
    until: str = "",
    return_after: int = 0,
    *,
    quiet: bool = False,
    verbose: bool = False,
) -> list[Summary]:
    """Run further iterations of a run, one after another; each one's figures are printed above the display, after an
    evaluation the held-out curve, and in the end how they went over the run."""
    Goal.of(until, config)  # what is wrong with them is said before anything starts
    check_return(return_after, config)
    with show_display(config, quiet) as display, closing(Tools()) as tools:
        from flows import train

        begin(tools, config)
        watcher = OnTerminal(display, config.store.root, iterations, quiet, verbose)
        with on_prefect():
            summaries = list(train.with_watcher(watcher, tools)(config, iterations, until, return_after))
    if not quiet and summaries:
        trend(display.console, config.run, past(config.store.root, summaries[-1]))
    return summaries


def run_evaluation(config: Config, *, quiet: bool = False) -> Scores:
    """Play test episodes with a policy of the run, and print the score."""
    with show_display(pose(config).config, quiet, training=False) as display, closing(Tools()) as tools:
        from flows import evaluate

        display.phase = "evaluating"
        if config.evaluation.tasks:  # else the whole split: the flow counts it
            display.planned = {"evaluations": config.evaluation.tasks * config.evaluation.repeats}
        with on_prefect():
            figures = evaluate.with_watcher(display.progress, tools=tools)(config)
    if not quiet:
        print_scores(display.console, figures)
    return figures


def begin(tools: Tools, config: Config) -> None:
    """Start the engine and the environment workers while Prefect's server starts, unless the iteration is finished."""
    store = Store.open(config.store.root)
    if config.iteration is None or config.iteration >= store.next_iteration(config.run, config.branch):
        tools.begin(config)


class OnTerminal:
    """Shows each iteration of a training run, and prints its figures when it has ended."""

    def __init__(self, display: Display, root: str, iterations: int, quiet: bool, verbose: bool) -> None:
        self.display, self.root, self.iterations = display, root, iterations
        self.quiet, self.verbose, self.begun, self.started = quiet, verbose, 0, time.monotonic()

    def begins(self, config: Config) -> Progress:
        left = (time.monotonic() - self.started) / self.begun * (self.iterations - self.begun) if self.begun else 0.0
        self.begun += 1
        count = f"{self.begun} of {self.iterations}{f', about {clock(left)} left' if left else ''}"
        return next_iteration(self.display, config, count)

    def ended(self, summary: Summary) -> None:
        if self.quiet:
            return
        result(self.display.console, summary, ask=False, verbose=self.verbose)
        if "evaluation" in summary:
            curve(self.display.console, past(self.root, summary))


def past(root: str, summary: Summary) -> list[dict[str, Any]]:
    """Read the figures of the summary's line so far."""
    return history(Store.open(root), summary["run"], summary["branch"])


def next_iteration(display: Display, config: Config, count: str = "") -> Progress:
    """Show the next iteration of the run from its beginning; what is returned counts its progress."""
    from r3l.pipeline.iteration import the_iteration

    display.progress = Progress()
    display.planned = expected_attempts(config)
    number = the_iteration(config, Store.open(config.store.root))
    display.title = " · ".join(filter(None, (title(config), f"iteration {number}", count)))
    display.phase = "starting Prefect's server" if tied.has_begun() else "asking Prefect's server for a run"
    display.progress.on_first("tasks", lambda: setattr(display, "phase", "running"))
    return display.progress


def title(config: Config) -> str:
    """Say what is run, in the panel's frame."""
    branch = f" branch {config.branch}" if config.branch else ""
    return f"r3l · run {config.run}{branch} · {config.method.kind} on {config.environment.kind}"


@contextlib.contextmanager
def show_display(config: Config, quiet: bool, training: bool = True, prefect: bool = True) -> Iterator[Display]:
    """Show a display, after the settings were checked: that comes before Prefect, whose start takes seconds.
    `prefect`: whether the block runs a flow."""
    from r3l.pipeline import preflight

    if prefect:
        tied.begin()
    display = Display(screen(stderr=True), title(config), Progress())
    with contextlib.nullcontext() if quiet else watching(display, plain=not display.console.is_terminal):
        display.phase = "checking the settings, the policy and the tasks"
        preflight.ready(config, training)
        if prefect:
            display.phase = "starting Prefect"
            if training and (config.placement.update_deployment or config.placement.shards == "workers"):
                from flows.placement.remote_jobs import check_placement

                check_placement(config.placement)  # before there is a flow run that fails
        yield display


@contextlib.contextmanager
def on_prefect() -> Iterator[None]:
    """Run a block that runs a flow, once the server answers. `tied.begin` comes before the flow's import.

    Raises:
        Interrupted: the flow run ended as Cancelled: to the terminal that is one line, and no error.
        ServerAway: the ephemeral server did not start.
    """
    from prefect.exceptions import CancelledRun

    tied.await_server()
    try:
        yield
    except CancelledRun as ended:
        raise Interrupted(str(ended)) from ended
