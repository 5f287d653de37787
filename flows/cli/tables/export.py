"""`r3l export`: a run as one file."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Root, Run, RunWord, the_run
from flows.cli.screen.console import say
from r3l.store.exports.run_file import export_run
from r3l.store.stage import Store


def export(
    word: RunWord = "",
    run: Run = "",
    store: Root = "",
    out: Annotated[
        Path | None,
        typer.Option(help="file: .parquet, .jsonl, or .json for a log of Inspect; empty: RUN.parquet in this folder"),
    ] = None,
) -> None:
    """Write a run as one nested file to share: a row per trajectory, with its turns, reflections, credit and training
    rows."""
    run = the_run(word, run)
    path = out or Path(f"{run}.parquet")
    say(f"{path}: {export_run(Store.open(store, reading=True), run, path)} trajectories")
