"""`r3l check`: whether a run is whole and its invariants hold."""

from __future__ import annotations

import typer

from flows.cli.options import Root, Run, RunWord, the_run
from flows.cli.screen.console import say
from r3l.evaluation.leaks import check_leaks
from r3l.store.check import check_run
from r3l.store.stage import Store


def check(word: RunWord = "", run: Run = "", store: Root = "") -> None:
    """Verify a run: manifests, hashes, every invariant, the account, and that no gold answer was shown. Exit code 1 if
    one is broken."""
    run, opened = the_run(word, run), Store.open(store, reading=True)
    findings = check_run(opened, run) or check_leaks(opened, run)
    for finding in findings:
        say(str(finding))
    say(f"{run}: {'ok' if not findings else f'{len(findings)} findings'}")
    raise typer.Exit(1 if findings else 0)
