"""Commands that show a store: in the browser, in a file, in the terminal, in a tracker. No Prefect, no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Branch, Root, Run, RunWord, the_run
from flows.cli.screen.console import say, screen
from r3l.store.stage import Store


def audit(
    word: Annotated[str, typer.Argument(metavar="[STORE]", help="the store; or --store")] = "",
    store: Root = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port on this machine")] = 4300,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="do not open the browser")] = False,
    host: Annotated[
        str, typer.Option(help="address to listen on; beyond loopback the key in R3L_AUDIT_KEY is required")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="a host name to accept in addition to localhost; may be repeated")
    ] = None,
) -> None:
    """Look at a store in the browser: iterations, groups, the four panes, reflections, the account, SQL. Read-only."""
    from r3l.audit.web.app import serve

    opened = Store.open(word or store, reading=True)
    screen(stderr=True).print(f"http://{host}:{port}/ shows {opened.root}; Ctrl + C ends it")
    serve(opened, port, open_browser=not no_browser, host=host, names=name or [])


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
    say(write_report(Store.open(store, reading=True), run, out or Path(f"{name}.html"), branch))


def show(
    trajectory: Annotated[str, typer.Argument(help="id, e.g. iteration=3/task=17/retry=2")],
    run: Annotated[
        str, typer.Option("--run", metavar="NAME", help="name of the run; empty: the run that has this id")
    ] = "",
    branch: Branch = "",
    store: Root = "",
) -> None:
    """Show a trajectory: the conversation with its pivot, the reflection beside it, weights as shading."""
    from r3l.audit.lines import Line
    from r3l.audit.terminal import show as shown

    screen().print(shown(Store.open(store, reading=True), trajectory, Line(run, branch) if run else None))


def status(word: RunWord = "", run: Run = "", branch: Branch = "", store: Root = "") -> None:
    """Show where a run stands: the stages of its newest iteration, its figures, its account."""
    from r3l.audit.terminal import status as shown

    screen().print(shown(Store.open(store, reading=True), the_run(word, run), branch))


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
    from r3l.audit.trackers import WRITERS
    from r3l.audit.trackers import track as write

    if to not in WRITERS:
        raise typer.BadParameter(f"{to!r}: choose one of {', '.join(WRITERS)}", param_hint="--to")
    run = the_run(word, run)
    written = write(Store.open(store, reading=True), run, to, where, branch)
    say(f"{run}: {written} iterations written to {to}")
