"""`r3l prepare`: an environment's data, found or downloaded, verified, listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flows.cli.console import say, screen
from r3l import plugins
from r3l.config.compose import assigned
from r3l.environments.prepare.prepare import prepare as make_ready


def prepare(
    kind: Annotated[str, typer.Argument(help="alfworld, webshop, scienceworld, math, household, or a plug-in's")],
    data_root: Annotated[Path, typer.Option(help="where the data are kept")] = Path("data/tasks"),
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting of the environment, e.g. games=downloaded")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="only this split, e.g. test; may be given several times")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="alfworld: take a folder that has only a part of the downloaded games")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="fetch nothing; say what is missing")] = False,
) -> None:
    """Find or download an environment's data, verify counts and hashes, write the task manifest."""
    if plugins.dotted(kind):
        plugins.look_in(Path.cwd())
        plugins.allow(kind)
    settings = assigned({"games": "downloaded", "partial": True} if partial else {}, set_ or [])
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen(stderr=True), transient=True) as bars:
        shown: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in shown:
                shown[what] = bars.add_task(what, total=total)
            bars.update(shown[what], completed=done, total=total)

        ready = make_ready(kind, data_root, settings, splits=split or (), download=not offline, progress=report)
    for note in ready.notes:
        say(note)
    say(json.dumps(ready.splits))
    say(f"{ready.kind}: ready, listed in {ready.manifest}")


def export_policy(
    policy: Annotated[Path, typer.Argument(help="e.g. data/runs/demo/policies/iteration=00003/policy")],
    out: Annotated[Path, typer.Argument(help="folder for the merged model")],
    base: Annotated[Path | None, typer.Option(help="an adapter's base model; empty: what it names itself")] = None,
) -> None:
    """Write a policy as one transformers model: an adapter is merged into its base."""
    from r3l.training.export import export_policy as export

    export(str(policy), str(out), str(base) if base else None)
    say(str(out))


def register(app: typer.Typer) -> None:
    app.command()(prepare)
    app.command("export-policy")(export_policy)
