"""`r3l compact`: few large files in place of many small ones."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import Root, Run, RunWord, the_run
from flows.cli.screen.console import say
from r3l.store.space.compaction import compact as compact_run
from r3l.store.stage import Store


def compact(
    word: RunWord = "",
    run: Run = "",
    iterations: Annotated[int, typer.Option(min=2, help="finished iterations per bundle, 2 or more")] = 16,
    store: Root = "",
) -> None:
    """Copy finished iterations into few large files, so that queries on a long run are as fast as on a short one."""
    run = the_run(word, run)
    made = compact_run(Store.open(store), run, iterations)
    say("\n".join(made) or f"{run}: no {iterations} finished iterations that are not bundled yet")
