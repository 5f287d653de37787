"""`r3l check`: whether a run is whole, its invariants hold, and what is written follows from what was sampled."""

from typing import Annotated

import typer

from flows.cli.options import Root, Run, RunWord, the_run
from flows.cli.screen.console import say, screen
from r3l.errors import ConfigError
from r3l.judge import sampled_again
from r3l.judge.scored import REPLIES
from r3l.judge.verdict import judge
from r3l.store.check import Finding
from r3l.store.stage import Store


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
) -> None:
    """Verify a run: manifests, hashes, every invariant, that no gold answer was shown; then make each stage again from
    its parents, with what was sampled, and compare. Exit code 1 if anything differs."""
    if quick and deep:
        raise ConfigError("--quick and --deep contradict each other: leave one out")
    run, run_store = the_run(word, run), Store.open(store, reading=not sample_again)
    verdict = judge(run_store, run, quick, replies=REPLIES if deep else 0)
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
