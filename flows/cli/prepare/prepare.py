"""`r3l prepare`: an environment's data, found or downloaded, verified, listed."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flows.cli.screen.console import say, say_json, screen
from r3l import plugins
from r3l.config.compose import assigned
from r3l.environments.prepare.prepare import prepare as make_ready


def prepare(
    kind: Annotated[str, typer.Argument(help="alfworld, webshop, scienceworld, math, household, or a plug-in's")],
    data_root: Annotated[Path, typer.Option(help="folder for the data")] = Path("data/tasks"),
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting of the environment, e.g. games=downloaded")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="only this split, e.g. test; may be repeated")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="alfworld: accept a folder that has only a part of the downloaded games")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="fetch nothing, only report what is missing")] = False,
) -> None:
    """Find or download an environment's data, verify counts and hashes, write the task manifest."""
    if plugins.dotted(kind):
        plugins.allow(kind)
    settings = assigned({"games": "downloaded", "partial": True} if partial else {}, set_ or [])
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen(stderr=True), transient=True) as bars:
        bar_of: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bar_of:
                bar_of[what] = bars.add_task(what, total=total)
            bars.update(bar_of[what], completed=done, total=total)

        ready = make_ready(kind, data_root, settings, splits=split or (), download=not offline, progress=report)
    for note in ready.notes:
        say(note)
    say_json(ready.splits)
    say(f"{ready.kind}: ready, listed in {ready.manifest}")
