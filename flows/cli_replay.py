"""`r3l replay`: what is computed again, whether it came out the same, and what differs."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

MARK = {True: "[green]same[/green]", False: "[yellow]differs[/yellow]"}


def replay(run: str, iteration: Annotated[int, typer.Option(help="which iteration")],
           from_: Annotated[str, typer.Option("--from", help="first stage that is computed again")] = "credit",
           to: Annotated[str, typer.Option("--to", help="last stage that is computed")] = "updates",
           set_: Annotated[list[str] | None, typer.Option("--set", help="a setting to change; none: prove that nothing changes")] = None,
           branch: Annotated[str, typer.Option(help="name of the new branch; empty: replay-1, replay-2, ...")] = "",
           source: Annotated[str, typer.Option(help="the branch that is replayed; empty: the run itself")] = "",
           store: Annotated[str, typer.Option("--store", help="store; empty: R3L_STORE, else data/runs")] = "",
           as_json: Annotated[bool, typer.Option("--json", help="the result as JSON")] = False) -> None:
    """Recompute stages of a stored iteration into a branch (the flow `r3l-replay`); the original never changes."""
    console = Console(stderr=True)
    with console.status("replaying") if console.is_terminal and not as_json else contextlib.nullcontext():
        from flows.replay import replay as flow

        result = flow(run, iteration, from_, to, set_ or [], branch, source, store)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        show(Console(), result)


def show(console: Console, result: dict[str, Any]) -> None:
    """A line for each replayed stage; shards that agree are one line."""
    rows = [row for row in result["stages"] if row["replayed"]]
    table = Table("stage", "shards", "settings and inputs", "rows", header_style="bold")
    for stage in dict.fromkeys(row["stage"] for row in rows):
        shards = [row for row in rows if row["stage"] == stage]
        table.add_row(stage, str(len(shards)), *(MARK[all(row[what] for row in shards)] for what in ("same_settings", "same_rows")))
    console.print(f"[bold]{result['run']}[/bold] iteration {result['iteration']} → branch [bold]{result['branch']}[/bold]", highlight=False)
    console.print(table)
    if rows and all(row["same_rows"] for row in rows):
        console.print("every replayed stage came out with the same rows, digest for digest")
    else:
        console.print(f"compare in SQL: SELECT branch, * EXCLUDE (run, branch) FROM iterations WHERE run = '{result['run']}' "
                      f"AND iteration = {result['iteration']}", highlight=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    app.command()(replay)
