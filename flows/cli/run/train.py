"""`r3l train`: iterations of a run, one after another."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import (
    AsJson,
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
    the_run,
)
from flows.cli.screen.console import say_json
from flows.cli.settings import settings
from flows.cli.terminal import run_training
from r3l.config.compose import POLICY


def train(
    word: RunWord = "",
    run: Run = "",
    preset: Preset = "paper",
    method: Method = "r3l",
    policy: Policy = POLICY,
    environment: EnvironmentName = "alfworld",
    engine: Engine = "",
    machine: Machine = "",
    iterations: Annotated[int, typer.Option(min=1, help="number of further iterations")] = 10,
    evaluate_every: Annotated[
        int, typer.Option(min=0, help="number of iterations between two evaluations; 0: no evaluation")
    ] = 0,
    set_: Set = None,
    store: Root = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run further iterations of a run, one after another (the flow `r3l-train`)."""
    given = [f"evaluation.every={evaluate_every}", *at(store, set_)]
    config = settings(the_run(word, run, "demo"), preset, method, policy, environment, engine, given, machine=machine)
    done = run_training(config, iterations, quiet=quiet or as_json, verbose=verbose)
    if as_json:
        say_json(done)
