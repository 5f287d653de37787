"""`r3l sql`: a question to the tables."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Root
from flows.cli.screen.answers import rows_view, warn_of_left_out
from flows.cli.screen.console import say_json, screen
from r3l.errors import ConfigError, StoreError
from r3l.store.figures import known
from r3l.store.query import ask, connect_for_users
from r3l.store.stage import Store

AsJson = Annotated[bool, typer.Option("--json", help="print rows as JSON lines")]
QUERY_SECONDS = 600.0


def sql(
    question: Annotated[str, typer.Argument(help="one SELECT; data/README.md lists tables and views")] = "",
    file: Annotated[
        str, typer.Option("--file", metavar="PATH", help="a file with the question; -: standard input")
    ] = "",
    store: Root = "",
    run: Annotated[list[str] | None, typer.Option(help="only these runs")] = None,
    branch: Annotated[str, typer.Option(help="show this branch of each run instead of the run itself")] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="hash every file again, even if this machine has hashed it before")
    ] = False,
    as_json: AsJson = False,
    allow_damaged: Annotated[
        bool, typer.Option("--allow-damaged", help="exit code 0 although damaged stages are left out")
    ] = False,
) -> None:
    """Ask the tables in SQL (DuckDB). Views: tasks, base, reflections, pivots, retries, distilled, credit, iterations,
    ... Exit code 1 where damaged stages are left out of the answer."""
    question = asked(question, file)
    run_store = Store.open(store, reading=True)
    known(run_store, run or ())
    with connect_for_users(run_store, run, branch=branch, verify=verify, question=question) as connection:
        left_out = dict(connection.execute("FROM left_out").fetchall())
        warn_of_left_out(left_out)
        if branch:
            refuse_unknown_branch(run_store, run or run_store.runs(), branch)
        answer = ask(connection, question, seconds=QUERY_SECONDS)
    if as_json:
        for row in answer.to_pylist():
            say_json(row)
        if left_out:  # rows have no such key: whoever reads lines sees it, however few of them there are
            say_json({"left_out": left_out})
        refuse_damaged(left_out, allow_damaged)
        return
    console = screen()
    console.print(rows_view(answer, console.width))
    runs_asked = [] if "run" in answer.column_names else {*(run or run_store.runs())} - left_out.keys()
    over = f" of {len(runs_asked)} runs together; --run names one" if len(runs_asked) > 1 else ""
    screen(stderr=True).print(f"{answer.num_rows} rows{over}", style="dim")
    refuse_damaged(left_out, allow_damaged)


def refuse_damaged(left_out: Mapping[str, str], allow: bool) -> None:
    """End with exit code 1 where something is left out of the answer and nobody said that this is fine."""
    if left_out and not allow:
        raise typer.Exit(1)


def asked(question: str, file: str) -> str:
    """Read the question, of the command line or of a file.

    Raises:
        ConfigError: there is none, there are two, or the file can't be read.
    """
    if bool(question.strip()) == bool(file):
        raise ConfigError("one question is expected: its words, as r3l sql 'FROM base', or --file PATH")
    if not file:
        return question
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file {file}: can't be read as text ({error})") from error


def refuse_unknown_branch(store: Store, runs: Iterable[str], branch: str) -> None:
    """Raise StoreError where none of the runs has the branch."""
    there = sorted({name for run in runs for name in store.branches(run)})
    if branch not in there:
        raise StoreError(f"branch {branch!r}: no run has it; there are {', '.join(there) or 'no branches'}")
