"""Commands that ask the tables, verify, share and prune them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Root, Run, RunWord, the_run
from flows.cli.screen.console import say, say_json, screen
from r3l.errors import ConfigError
from r3l.judge import REPLIES
from r3l.store.stage import Store
from r3l.store.tables.columns import Drop

AsJson = Annotated[bool, typer.Option("--json", help="print rows as JSON lines")]
QUERY_SECONDS = 600.0
ROWS_ON_A_SCREEN = 40  # of an answer, as in DuckDB's own shell


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
    from flows.cli.screen.answers import rows_view, warn_of_left_out
    from r3l.store.query import ask, connect_for_users, require_branch, require_runs

    question = question_of(question, file)
    run_store = Store.open(store, reading=True)
    require_runs(run_store, run or ())
    with connect_for_users(run_store, run, branch=branch, verify=verify, question=question) as connection:
        left_out = dict(connection.execute("FROM left_out").fetchall())
        warn_of_left_out(left_out)
        if branch:
            require_branch(run_store, run or run_store.runs(), branch)
        answer = ask(connection, question, seconds=QUERY_SECONDS)
    if as_json:
        for row in answer.to_pylist():
            say_json(row)
        if left_out:  # rows have no such key: whoever reads lines sees it, however few of them there are
            say_json({"left_out": left_out})
        refuse_damaged(left_out, allow_damaged)
        return
    console = screen()
    most_rows = ROWS_ON_A_SCREEN if sys.stdout.isatty() else None
    console.print(rows_view(answer, console.width, most_rows))
    runs_asked = [] if "run" in answer.column_names else {*(run or run_store.runs())} - left_out.keys()
    over = f" of {len(runs_asked)} runs together; --run names one" if len(runs_asked) > 1 else ""
    which = ""
    if most_rows and answer.num_rows > most_rows:
        which = f", the first and last {most_rows // 2} of them shown: a pipe or --json has all"
    screen(stderr=True).print(f"{answer.num_rows} rows{over}{which}", style="dim")
    refuse_damaged(left_out, allow_damaged)


def refuse_damaged(left_out: Mapping[str, str], allow: bool) -> None:
    """End with exit code 1 where something is left out of the answer and nobody said that this is fine."""
    if left_out and not allow:
        raise typer.Exit(1)


def question_of(question: str, file: str) -> str:
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


def check(
    word: RunWord = "",
    run: Run = "",
    store: Root = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="only manifests, hashes and invariants; make no stage again")
    ] = False,
    sample_again: Annotated[
        int,
        typer.Option(min=0, help="so many random shards are also sampled again; what comes of it is a row of events"),
    ] = 0,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help=f"also let the policy that sampled {REPLIES} replies of each iteration, drawn anew each time, compute "
            "their log-probabilities again",
        ),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="also what this machine found sound before, and whose files have not changed since"),
    ] = False,
) -> None:
    """Verify a run: manifests, hashes, every invariant, that no gold answer was shown; then make each stage again from
    its parents, with what was sampled, and compare. Exit code 1 if anything differs."""
    from r3l.judge import sampled_again
    from r3l.judge.verdict import judge
    from r3l.store.damage import Finding

    if quick and deep:
        raise ConfigError("--quick and --deep contradict each other: leave one out")
    run, run_store = the_run(word, run), Store.open(store, reading=not sample_again)
    verdict = judge(run_store, run, quick, replies=REPLIES if deep else 0, everything=everything or deep)
    for finding in verdict.findings:
        say(str(finding))
    if verdict.stages:
        screen(stderr=True).print(str(verdict), style="dim", soft_wrap=True, markup=False)
    if sample_again and verdict.sound:
        for one in sampled_again.sample_again(run_store, run, sample_again):
            say(str(one))
            verdict.findings += [Finding("sampled again", str(one.key), one.reason)] if one.broken else []
    say(f"{run}: {'ok' if verdict.sound else f'{len(verdict.findings)} findings'}")
    raise typer.Exit(0 if verdict.sound else 1)


def export(
    word: RunWord = "",
    run: Run = "",
    store: Root = "",
    out: Annotated[
        Path | None, typer.Option(help="file: .parquet or .jsonl; empty: RUN.parquet in this folder")
    ] = None,
    to_hub: Annotated[
        Path | None,
        typer.Option(
            "--to-hub", metavar="FOLDER", help="instead: a data set in the hub's layout, a Parquet file per table"
        ),
    ] = None,
) -> None:
    """Write a run as one nested file to share: a row per trajectory, with its turns, reflections, credit and training
    rows."""
    from r3l.store.exports.run_file import export_run

    run = the_run(word, run)
    if to_hub and out:
        raise ConfigError("--out names a file and --to-hub a folder: give one of them")
    if to_hub:
        from r3l.store.exports.hub_dataset import export_to_hub

        rows = export_to_hub(Store.open(store, reading=True), run, to_hub)
        say(f"{to_hub}: {', '.join(f'{number:,} {table}' for table, number in rows.items())}")
        say(f"upload it with `hf upload USER/NAME {to_hub} --repo-type dataset`")
        return
    path = out or Path(f"{run}.parquet")
    say(f"{path}: {export_run(Store.open(store, reading=True), run, path)} trajectories")


def import_(
    path: Annotated[Path, typer.Argument(help="what the package wrote: a file, or the folder of several")],
    package: Annotated[
        str, typer.Option("--from", metavar="PACKAGE", help="trl, verl, prime-rl, slime or trinity: data/guide/from.md")
    ],
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="name of the run; empty: the package's")] = "",
    tokenizer: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="model whose tokenizer makes token ids of the texts, which credit is spread over"
        ),
    ] = "",
    store: Root = "",
) -> None:
    """Read the rollouts that another package wrote to disk as a run: sql, audit, why and credit work on it. What the
    package does not write is left empty, and said in `events`."""
    from r3l.pipeline.imports import import_run

    name = run or package
    counts = import_run(Store.open(store), name, package, path, tokenizer)
    say(f"{name}: {counts['iterations']} iterations, {counts['attempts']} attempts, {counts['credited']} with credit")


def prune(
    keep_last: Annotated[int, typer.Option(min=1, help="number of newest iterations that stay complete, 1 or more")],
    word: RunWord = "",
    run: Run = "",
    drop: Annotated[
        Drop, typer.Option(help="what is deleted: log-probabilities, also token ids, also texts; or policies")
    ] = "logprobs",
    store: Root = "",
) -> None:
    """Free the space of old iterations; rows, manifests and figures stay. Print what can no longer be replayed."""
    from r3l.pipeline.policies import needed_next
    from r3l.store.space.retention import prune_run

    run, opened = the_run(word, run), Store.open(store)
    needed = needed_next(opened, run) if drop == "policies" else ()
    say(str(prune_run(opened, run, keep_last, drop, needed)))
