"""`r3l why`: the story of a trajectory, from its weights back to its task."""

from typing import Annotated

import typer

from flows.cli.options import Branch, Root, RunOf
from flows.cli.screen.answers import story, warn_of_damage
from flows.cli.screen.console import screen
from r3l.errors import ConfigError
from r3l.store.genealogy import why as genealogy
from r3l.store.stage import Store


def why(
    trajectory: Annotated[str, typer.Argument(help="id, e.g. iteration=3/task=17/base=2/retry=0")],
    run: RunOf = "",
    branch: Branch = "",
    turn: Annotated[int | None, typer.Option(help="also show this turn token by token")] = None,
    store: Root = "",
) -> None:
    """Explain why a trajectory was trained with its weights: row, credit, retry, reflection, base, task, and the step
    it went into."""
    run_store = Store.open(store, reading=True)
    run = only_run(run_store, run)
    warn_of_damage(run_store, [run])
    screen().print(story(str(genealogy(run_store, run, trajectory, branch, turn))), soft_wrap=True)


def only_run(store: Store, name: str) -> str:
    """Choose the run that is named, else the store's only one.

    Raises:
        ConfigError: none is named, and the store has none or several.
    """
    runs = [name] if name else store.runs()
    if len(runs) != 1:
        raise ConfigError(
            f"--run is needed: the runs of {store.root} are {', '.join(runs)}" if runs else f"{store.root} has no run"
        )
    return runs[0]
