"""`r3l show`: a trajectory in the terminal."""

from typing import Annotated

import typer

from flows.cli.options import Branch, Root
from flows.cli.screen.answers import warn_of_damage
from flows.cli.screen.console import screen
from r3l.store.stage import Store


def show(
    trajectory: Annotated[str, typer.Argument(help="id, e.g. iteration=3/task=17/base=2/retry=0")],
    run: Annotated[
        str, typer.Option("--run", metavar="NAME", help="name of the run; empty: the run that has this id")
    ] = "",
    branch: Branch = "",
    store: Root = "",
) -> None:
    """Show a trajectory: the conversation with its pivot, the reflection beside it, weights as shading."""
    from r3l.audit.lines import Line
    from r3l.audit.terminal import show as shown

    opened = Store.open(store, reading=True)
    warn_of_damage(opened, [run] if run else opened.runs())
    screen().print(shown(opened, trajectory, Line(run, branch) if run else None))
