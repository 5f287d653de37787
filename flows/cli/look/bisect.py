"""`r3l bisect`: where two runs part first, and why."""

from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.options import Root
from flows.cli.screen.console import say, say_json
from r3l.judge.parting import Line, parting
from r3l.store.stage import Store


def bisect(
    a: Annotated[str, typer.Argument(help="a run, or RUN/BRANCH")],
    b: Annotated[str, typer.Argument(help="the other one")],
    store: Root = "",
    other_store: Annotated[str, typer.Option(help="store of the second one; empty: the same")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Find the first iteration, stage, row, turn and token in which two runs differ, and the cause."""
    lines = [_line(word, root) for word, root in ((a, store), (b, other_store or store))]
    difference = parting(*lines)
    if as_json:
        say_json(None if difference is None else asdict(difference))
    else:
        say(str(difference) if difference else f"{a} and {b}: equal as far as both go")


def _line(word: str, root: str) -> Line:
    run, _, branch = word.partition("/")
    return Line(Store.open(root, reading=True), run, branch)
