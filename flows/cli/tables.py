"""Commands that read the store: no Prefect, no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from flows.cli.options import Branch, Root, Run, RunOf, RunWord, the_run
from flows.cli.screen.answers import cell, rows_view, story
from flows.cli.screen.console import say, screen
from r3l.errors import ConfigError, StoreError
from r3l.store.check import check_run
from r3l.store.exports.run_file import export_run
from r3l.store.figures import LINES, known, remembered
from r3l.store.genealogy import why as genealogy
from r3l.store.query import ask, connect_for_users
from r3l.store.space.compaction import compact as compact_run
from r3l.store.space.retention import prune_run
from r3l.store.stage import Store
from r3l.store.tables.columns import Drop

AsJson = Annotated[bool, typer.Option("--json", help="print rows as JSON lines")]
QUERY_SECONDS = 600.0
NEWEST = """
SELECT run, branch, arg_max(base_success, iteration) AS base_success, coalesce(arg_max(no_step, iteration), '') AS note
FROM lines.iterations GROUP BY run, branch
"""


def sql(
    question: str,
    store: Root = "",
    run: Annotated[list[str] | None, typer.Option(help="only these runs")] = None,
    branch: Annotated[str, typer.Option(help="show this branch of each run instead of the run itself")] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="hash every file again, even if this machine has hashed it before")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the tables in SQL (DuckDB). Views: tasks, base, reflections, pivots, retries, distilled, credit, iterations,
    ..."""
    opened = Store.open(store, reading=True)
    known(opened, run or ())
    with connect_for_users(opened, run, branch=branch, verify=verify, question=question) as connection:
        left_out = dict(connection.execute("FROM left_out").fetchall())
        name_left_out(left_out)
        if branch:
            refuse_unknown_branch(opened, run or opened.runs(), branch)
        answer = ask(connection, question, seconds=QUERY_SECONDS)
    if as_json:
        for row in answer.to_pylist():
            say(json.dumps(row, default=str))
        return
    console = screen()
    console.print(rows_view(answer, console.width))
    pooled = [] if "run" in answer.column_names else {*(run or opened.runs())} - left_out.keys()
    over = f" of {len(pooled)} runs together; --run names one" if len(pooled) > 1 else ""
    screen(stderr=True).print(f"{answer.num_rows} rows{over}", style="dim")


def name_left_out(left_out: Mapping[str, str]) -> None:
    """A warning for each damaged run."""
    for run, why in left_out.items():
        said = f"warning: run {run} is left out: {why}; `r3l check {run}` names what is damaged"
        screen(stderr=True).print(Text(said, style="yellow"), soft_wrap=True)


def refuse_unknown_branch(store: Store, runs: Iterable[str], branch: str) -> None:
    """Raise StoreError where none of the runs has the branch."""
    there = sorted({name for run in runs for name in store.branches(run)})
    if branch not in there:
        raise StoreError(f"branch {branch!r}: no run has it; there are {', '.join(there) or 'no branches'}")


def check(word: RunWord = "", run: Run = "", store: Root = "") -> None:
    """Verify a run: manifests, hashes, the seven invariants, the account, no gold answer shown. Exit code 1 where one
    is broken."""
    run, opened = the_run(word, run), Store.open(store, reading=True)
    from r3l.evaluation.leaks import check_leaks  # loads the environments, which no other command here needs

    findings = check_run(opened, run) or check_leaks(opened, run)
    for finding in findings:
        say(str(finding))
    say(f"{run}: {'ok' if not findings else f'{len(findings)} findings'}")
    raise typer.Exit(1 if findings else 0)


def runs(store: Root = "") -> None:
    """List the runs of the store."""
    figures = remembered(Store.open(store, reading=True), "runs", {"lines": LINES, "newest": NEWEST})
    name_left_out(figures.left_out)
    table = Table("run", "branch", header_style="bold")
    for name in ("iterations", "last commit (UTC)", "base success, newest"):
        table.add_column(name, justify="right")
    table.add_column("newest iteration")
    rows = [(row, answers["newest"]) for answers in figures.runs.values() for row in answers["lines"]]
    for row, newest in sorted(rows, key=lambda pair: pair[0]["last_commit"], reverse=True):
        its = next((one for one in newest if one["branch"] == row["branch"]), {"base_success": None, "note": ""})
        rate = "" if its["base_success"] is None else f"{100 * its['base_success']:.1f} %"
        last = row["last_commit"][:16].replace("T", " ")
        table.add_row(cell(row["run"]), cell(row["branch"]), str(row["iterations"]), last, rate, cell(its["note"]))
    screen().print(table)


def why(
    trajectory: str,
    run: RunOf = "",
    branch: Branch = "",
    turn: Annotated[int | None, typer.Option(help="also show this turn token by token")] = None,
    store: Root = "",
) -> None:
    """Why a trajectory was trained with its weights: row, credit, retry, reflection, base, task, and the step it went
    into."""
    opened = Store.open(store, reading=True)
    screen().print(story(str(genealogy(opened, only_run(opened, run), trajectory, branch, turn))), soft_wrap=True)


def only_run(store: Store, named: str) -> str:
    """Return the run that is named, else the store's only one.

    Raises:
        ConfigError: none is named, and the store has none or several.
    """
    runs = [named] if named else store.runs()
    if len(runs) != 1:
        raise ConfigError(f"--run: which one? {store.root} has {', '.join(runs) or 'none'}")
    return runs[0]


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


def prune(
    keep_last: Annotated[int, typer.Option(min=1, help="number of newest iterations that stay complete, 1 or more")],
    word: RunWord = "",
    run: Run = "",
    drop: Annotated[
        Drop, typer.Option(help="what is deleted: log-probabilities, also token ids, also texts; or policies")
    ] = "logprobs",
    store: Root = "",
) -> None:
    """Give back the space of old iterations; rows, manifests and figures stay. Says what can no longer be replayed."""
    say(str(prune_run(Store.open(store), the_run(word, run), keep_last, drop)))


def compact(
    word: RunWord = "",
    run: Run = "",
    iterations: Annotated[int, typer.Option(min=2, help="finished iterations per bundle, 2 or more")] = 16,
    store: Root = "",
) -> None:
    """Copy finished iterations into few large files, so that a long run is asked as fast as a short one."""
    run = the_run(word, run)
    made = compact_run(Store.open(store), run, iterations)
    say("\n".join(made) or f"{run}: no {iterations} finished iterations that are not bundled yet")
