"""`r3l track`: the metrics of a run to a tracker."""

from typing import Annotated

import typer

from flows.cli.options import Branch, Root, Run, RunWord, the_run
from flows.cli.screen.answers import warn_of_damage
from flows.cli.screen.console import say
from r3l.store.stage import Store


def track(
    word: RunWord = "",
    run: Run = "",
    to: Annotated[str, typer.Option("--to", help="tensorboard, mlflow, wandb or trackio")] = "tensorboard",
    where: Annotated[
        str, typer.Option("--where", help="log folder, tracking URI or project; empty: the tracker's own default")
    ] = "",
    branch: Branch = "",
    store: Root = "",
) -> None:
    """Write a run's stored metrics to a tracker. Run it again to add the new ones."""
    from r3l.pipeline.tracking.writers import WRITERS
    from r3l.pipeline.tracking.writers import track as write

    if to not in WRITERS:
        raise typer.BadParameter(f"{to!r}: choose one of {', '.join(WRITERS)}", param_hint="--to")
    run = the_run(word, run)
    run_store = Store.open(store, reading=True)
    warn_of_damage(run_store, [run])
    iterations = write(run_store, run, to, where, branch)
    say(f"{run}: {iterations} iterations written to {to}")
