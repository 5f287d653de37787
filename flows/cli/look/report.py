"""`r3l report`: a run as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Branch, Root, Run, RunWord, the_run
from flows.cli.screen.answers import warn_of_damage
from flows.cli.screen.console import say
from r3l.store.stage import Store


def report(
    word: RunWord = "",
    run: Run = "",
    out: Annotated[Path | None, typer.Option("--out", help="file to write; empty: RUN.html in this folder")] = None,
    branch: Branch = "",
    store: Root = "",
) -> None:
    """Write a run's report: one HTML file with plots, tables and ten telling attempts."""
    run = the_run(word, run)
    from r3l.audit.report import write_report

    name = f"{run}-{branch}" if branch else run
    opened = Store.open(store, reading=True)
    warn_of_damage(opened, [run])
    say(write_report(opened, run, out or Path(f"{name}.html"), branch))
