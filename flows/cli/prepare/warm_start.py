"""`r3l warm-start`: a small starting policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.screen.console import say, screen
from r3l.home import home


def warm_start(
    out: Annotated[
        Path | None,
        typer.Option(help="folder of the policy; empty: data/policies/embedded, or household-RECIPE-SEED there"),
    ] = None,
    environment: Annotated[str, typer.Option(help="alfworld or household")] = "alfworld",
    recipe: Annotated[
        str, typer.Option(help="recipe of the household: easy, in_hand, thought, standard, long or latent")
    ] = "easy",
    forgets: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="share of treatments that the demonstrations of recipe latent leave out"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            help="minutes in all (empty: 20); household: bounds the training, and the weights then depend on the time",
        ),
    ] = None,
    init: Annotated[Path | None, typer.Option(help="folder of an earlier policy to continue from")] = None,
) -> None:
    """Make a small starting policy: tokenizer, demonstrations in the world itself, supervised training, held-out
    figures."""

    def log_line(line: str) -> None:
        screen(stderr=True).print(line)

    if environment == "household":
        from r3l.warm_start.household.start import household_start

        named = "-".join(["household", recipe, *([] if forgets is None else [f"{forgets:g}"]), str(seed)])
        figures = household_start(
            out or home() / "data/policies" / named,
            recipe,
            seed,
            minutes,
            progress=log_line,
            init=init,
            forgets=forgets,
        )
    else:
        from r3l.warm_start.start import warm_start as make

        figures = make(
            out or home() / "data/policies/embedded", seed=seed, minutes=minutes or 20.0, init=init, progress=log_line
        )
    say(json.dumps(figures, indent=1))
