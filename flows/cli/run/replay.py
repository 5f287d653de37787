"""`r3l replay`: what is computed again, whether the result is the same, and what differs."""

import contextlib
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.options import Root, Run, RunWord, the_run
from flows.cli.screen.console import say, say_json, screen
from flows.serving import tied
from r3l.config.compose import allow_named, assigned
from r3l.judge.played_again import played_again
from r3l.pipeline.replay import Replayed, replay_config
from r3l.pipeline.workbench import Replay
from r3l.store.difference import diff, difference_lines
from r3l.store.stage import Store


def replay(
    iteration: Annotated[int, typer.Option(help="number of the iteration")],
    word: RunWord = "",
    run: Run = "",
    from_: Annotated[str, typer.Option("--from", help="first stage to recompute")] = "credit",
    to: Annotated[str, typer.Option("--to", help="last stage to recompute")] = "updates",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="a setting to change; without any, the replay shows that nothing changes"),
    ] = None,
    branch: Annotated[str, typer.Option(help="name of the new branch; empty: replay-1, replay-2, ...")] = "",
    source: Annotated[str, typer.Option(help="branch to replay; empty: the run itself")] = "",
    store: Root = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="compare all rows, bits and all; exit code 1 where one differs")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Recompute stages of a stored iteration into a branch (the flow `r3l-replay`); the original never changes."""
    run = the_run(word, run)
    run_store, request = Store.open(store), Replay(source, from_, to)
    allow_named(assigned({}, set_ or []))
    replay_config(run_store, run, iteration, request, set_ or [], branch)  # what is wrong is said before Prefect starts
    console = screen(stderr=True)
    with console.status("replaying") if console.is_terminal and not as_json else contextlib.nullcontext():
        from flows.cli.terminal import on_prefect

        tied.begin()
        from flows.replay import replay as flow

        with on_prefect():
            result = flow(run, iteration, from_, to, set_ or [], branch, source, store)
    again = played_again(run_store, run, iteration, source, result["branch"]) if verify else []
    if as_json:
        say_json({**result, "again": [asdict(stage) for stage in again]} if verify else result)
    elif verify:
        say("\n".join([f"replayed into branch {result['branch']}", *map(str, again)]))
    else:
        show(screen(), result)
    raise typer.Exit(1 if any(stage.first for stage in again) else 0)


def show(console: Console, result: Replayed) -> None:
    """Print what differs between the branch and what it was replayed from, stage by stage."""
    console.print(Text.assemble("replayed into branch ", (result["branch"], "bold")))
    difference = diff(
        Store.open(result["store"]), result["run"], result["iteration"], result["source_branch"], result["branch"]
    )
    for line in difference_lines(difference):
        console.print(line, soft_wrap=True)
