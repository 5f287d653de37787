"""Commands that read the store: no Prefect, no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from r3l.config import preset_names
from r3l.config.preset_diff import diff_presets
from r3l.evaluation.leaks import check_leaks
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.compaction import compact as compact_run
from r3l.store.export import export_run
from r3l.store.genealogy import why as genealogy
from r3l.store.query import ask, connect_for_users
from r3l.store.retention import Drop, prune_run
from r3l.store.stage import Store

Root = Annotated[str, typer.Option("--store", help="store; empty: R3L_STORE, else data/runs")]
AsJson = Annotated[bool, typer.Option("--json", help="rows as JSON lines")]
CELL = 60
QUERY_SECONDS = 600.0
RUNS = """
SELECT run, branch, count(*) AS iterations, left(replace(max(last_commit), 'T', ' '), 16) AS last,
       format('{:.1f} %', 100 * arg_max(base_success, iteration)) AS base_success
FROM iterations GROUP BY ALL ORDER BY last DESC
"""


def sql(question: str, store: Root = "", run: Annotated[list[str] | None, typer.Option(help="only these runs")] = None,
        as_json: AsJson = False) -> None:
    """Ask the tables in SQL (DuckDB). Views: tasks, base, reflections, pivots, retries, distilled, credit, iterations, ..."""
    with connect_for_users(Store.open(store), run) as connection:
        found = ask(connection, question, seconds=QUERY_SECONDS)
    if as_json:
        for row in found.to_pylist():
            typer.echo(json.dumps(row, default=str))
        return
    table = Table(*found.column_names, header_style="bold")
    for row in found.to_pylist():
        table.add_row(*(cell(value) for value in row.values()))
    Console().print(table)
    Console(stderr=True).print(f"{found.num_rows} rows", style="dim")


def cell(value: object) -> str:
    """A value as one line of text, shortened; what came from a model or a page is shown as it is, never as markup."""
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    text = text.replace("\n", " ").replace("[", r"\[")
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def check(run: str, store: Root = "") -> None:
    """Verify a run: manifests, hashes, the seven invariants, the account, no gold answer shown. Exit code 1 where one is broken."""
    opened = Store.open(store)
    findings = check_run(opened, run) or check_leaks(opened, run)
    for finding in findings:
        typer.echo(str(finding))
    typer.echo(f"{run}: {'ok' if not findings else f'{len(findings)} findings'}")
    raise typer.Exit(1 if findings else 0)


def runs(store: Root = "") -> None:
    """List the runs of the store."""
    with connect(Store.open(store)) as connection:
        rows = connection.execute(RUNS).fetchall()
    table = Table("run", "branch", header_style="bold")
    for name in ("iterations", "last commit (UTC)", "base success, newest"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    Console().print(table)


def why(trajectory: str, run: Annotated[str, typer.Option(help="name of the run")] = "demo",
        branch: Annotated[str, typer.Option(help="a branch of the run")] = "",
        turn: Annotated[int | None, typer.Option(help="this turn token by token too")] = None, store: Root = "") -> None:
    """Why a trajectory was trained with its weights: row, credit, retry, reflection, base, task, and the step it went into."""
    typer.echo(str(genealogy(Store.open(store), run, trajectory, branch, turn)))


def export(run: str, store: Root = "",
           out: Annotated[Path | None, typer.Option(help=".parquet, .jsonl, or .json: a log of Inspect; empty: RUN.parquet here")] = None
           ) -> None:
    """Write a run as one nested file to share: a row per trajectory, with its turns, reflections, credit and training rows."""
    path = out or Path(f"{run}.parquet")
    typer.echo(f"{path}: {export_run(Store.open(store), run, path)} trajectories")


def prune(run: str, keep_last: Annotated[int, typer.Option(min=1, help="iterations that stay whole, 1 or more")],
          drop: Annotated[Drop, typer.Option(help="what goes: log-probabilities, token ids too, texts too; or policies")] = "logprobs",
          store: Root = "") -> None:
    """Give back the space of old iterations; rows, manifests and figures stay. Says what can no longer be replayed."""
    typer.echo(str(prune_run(Store.open(store), run, keep_last, drop)))


def compact(run: str, iterations: Annotated[int, typer.Option(min=2, help="finished iterations per bundle, 2 or more")] = 16,
            store: Root = "") -> None:
    """Copy finished iterations into few large files, so that a long run is asked as fast as a short one."""
    made = compact_run(Store.open(store), run, iterations)
    typer.echo("\n".join(made) or f"{run}: no {iterations} finished iterations that are not bundled yet")


def presets(diff: Annotated[tuple[str, str] | None, typer.Option(help="two method presets: what they set differently")] = None) -> None:
    """List the presets of models, environments, methods and machines, or compare two methods."""
    if diff:
        _show_differences(*diff)
        return
    for folder in ("models", "environments", "methods", "machines"):
        typer.echo(f"{folder}: {', '.join(preset_names(folder))}")


def _show_differences(a: str, b: str) -> None:
    table = Table("setting", a, b, header_style="bold")
    for name, left, right in diff_presets(a, b):
        table.add_row(name, *("—" if value is None else str(value) for value in (left, right)))
    Console().print(table)


def register(app: typer.Typer) -> None:
    for command in (sql, check, runs, why, export, prune, compact, presets):
        app.command()(command)
