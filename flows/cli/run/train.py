"""`r3l train`: iterations of a run, one after another."""

from typing import Annotated

import typer

from flows.cli.options import (
    AsJson,
    Changed,
    Engine,
    EnvironmentName,
    Machine,
    Method,
    Policy,
    Preset,
    Quiet,
    Root,
    Run,
    RunWord,
    Set,
    Verbose,
    at,
    how_much,
    the_run,
)
from flows.cli.screen.console import say_json
from flows.cli.settings import settings
from flows.cli.terminal import run_training


def train(
    word: RunWord = "",
    run: Run = "",
    preset: Preset = "",
    method: Method = "",
    policy: Policy = "",
    environment: EnvironmentName = "",
    engine: Engine = "",
    machine: Machine = "",
    iterations: Annotated[int, typer.Option(min=1, help="number of further iterations")] = 10,
    evaluate_every: Annotated[
        int | None,
        typer.Option(min=0, help="number of iterations between two evaluations; 0: no evaluation (new run: 0)"),
    ] = None,
    set_: Set = None,
    change: Changed = False,
    store: Root = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run further iterations of a run, one after another (the flow `r3l-train`). A run that is there goes on with the
    settings of its newest iteration; what is given here comes on top, from the first iteration on."""
    every = [] if evaluate_every is None else [f"evaluation.every={evaluate_every}"]
    how_much(quiet, verbose)
    config = settings(
        the_run(word, run, "demo"),
        preset,
        method,
        policy,
        environment,
        engine,
        [*every, *at(store, set_)],
        machine=machine,
        change=change or None,
    )
    summaries = run_training(config, iterations, quiet=quiet or as_json, verbose=verbose)
    if as_json:
        say_json(summaries)
