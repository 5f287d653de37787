"""`r3l prune`: less space for old iterations."""

from typing import Annotated

import typer

from flows.cli.options import Root, Run, RunWord, the_run
from flows.cli.screen.console import say
from r3l.store.space.retention import prune_run
from r3l.store.stage import Store
from r3l.store.tables.columns import Drop


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
    say(str(prune_run(Store.open(store), the_run(word, run), keep_last, drop)))
