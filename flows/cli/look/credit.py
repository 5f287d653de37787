"""`r3l credit`: what each method would have made of the groups of a stored iteration."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from flows.cli.screen.answers import warn_of_left_out
from flows.cli.screen.console import say_json, screen
from r3l.pipeline.counterfactual import Counterfactual, counterfactuals
from r3l.store.catalog import left_out_of
from r3l.store.figures import known
from r3l.store.stage import Store


def credit(
    run: Annotated[str, typer.Argument(help="name of the run")] = "demo",
    iteration: Annotated[int, typer.Option(min=0, help="a stored iteration")] = 0,
    branch: Annotated[str, typer.Option(help="a branch of the run")] = "",
    methods: Annotated[str, typer.Option(help="only these method presets, separated by commas; empty: all")] = "",
    store: Annotated[str, typer.Option("--store", help="store; empty: R3L_STORE, else data/runs")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object per method, with the mass of each turn")
    ] = False,
) -> None:
    """Show the credit that each method would have given to the rollouts of an iteration. Nothing is sampled, trained or
    stored."""
    run_store = Store.open(store, reading=True)
    known(run_store, [run])
    left_out = left_out_of(run_store, [run])
    warn_of_left_out(left_out)
    names = [name for name in methods.split(",") if name]
    rows, others = counterfactuals(run_store, run, branch, iteration, names)
    if as_json:
        for one in rows:
            say_json({"method": one.preset, **asdict(one.mass)})
        if left_out:
            say_json({"left_out": left_out})
        return
    console = screen()
    console.print(table(rows, f"{run}, iteration {iteration}"))
    console.print(
        "Mass: coefficient × weight × advantage, summed over tokens, as shares of a method's own total. Before the "
        "fault: of the mass on failed base trajectories, the part on turns before the one that the oracle names.",
        style="dim",
    )
    if others:
        console.print(f"Other rollouts are sampled by: {', '.join(others)}.", style="dim")


def table(rows: list[Counterfactual], title: str) -> Table:
    """Draw one line per method."""
    grid = Table(title=title, title_justify="left")
    grid.add_column("method", no_wrap=True)
    for name in ("rows", "likelier", "less likely", "on lessons", "before the fault", "after it"):
        grid.add_column(name, justify="right")
    for one in rows:
        mass, total = one.mass, one.mass.raised + one.mass.lowered
        before = mass.share_before
        shares: list[float | None] = [None, None, None]
        if total:
            shares = [mass.raised / total, mass.lowered / total, mass.lessons / total]
        shares += [before, None if before is None else 1 - before]
        cells = ["–" if share is None else f"{share:.0%}" for share in shares]
        grid.add_row(one.preset, str(mass.rows), *cells, style="bold" if one.own else None)
    return grid
