"""`r3l bisect`: where two runs part first, and why."""

from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.options import Root
from flows.cli.screen.console import say, say_json
from r3l.judge.alone import comes_again
from r3l.judge.sampled_again import stage_again
from r3l.stages import STAGES
from r3l.store.parting import Line, Parting, parting
from r3l.store.stage import Store


def bisect(
    a: Annotated[str, typer.Argument(help="a run, or RUN/BRANCH")],
    b: Annotated[str, typer.Argument(help="the other one")],
    store: Root = "",
    other_store: Annotated[str, typer.Option(help="store of the second one; empty: the same")] = "",
    sample: Annotated[
        bool,
        typer.Option("--sample", help="sample the stage again where they part in what was sampled; takes an engine"),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Find the first iteration, stage, row, turn and token in which two runs differ, and the cause; then make that one
    stage of both again from what it was made from, to see which of them follows."""
    lines = [_line(word, root) for word, root in ((a, store), (b, other_store or store))]
    difference = parting(*lines)
    if difference:
        difference.more["made again"] = [_again(line, difference, sample) for line in lines]
    if as_json:
        say_json(None if difference is None else asdict(difference))
    else:
        say(str(difference) if difference else f"{a} and {b}: equal as far as both go")


def _again(line: Line, difference: Parting, sample: bool) -> str:
    key = line.stages()[difference.iteration, difference.stage, difference.shard].key
    return stage_again(line.store, key) if sample and STAGES[key.stage].samples else comes_again(line.store, key)


def _line(word: str, root: str) -> Line:
    run, _, branch = word.partition("/")
    return Line(Store.open(root, reading=True), run, branch)
