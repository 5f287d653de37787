"""`r3l iterate`: one iteration of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import (
    AsJson,
    Branch,
    Direct,
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
from flows.cli.terminal import run_iteration
from r3l.config.compose import POLICY


def iterate(
    word: RunWord = "",
    run: Run = "",
    preset: Preset = "paper",
    method: Method = "r3l",
    policy: Policy = POLICY,
    environment: EnvironmentName = "alfworld",
    engine: Engine = "",
    machine: Machine = "",
    iteration: Annotated[int | None, typer.Option(help="number of the iteration; empty: the run's next one")] = None,
    branch: Branch = "",
    direct: Direct = False,
    set_: Set = None,
    store: Root = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run one training iteration: the flow `r3l`, or its stages without Prefect."""
    config = settings(
        the_run(word, run, "demo"),
        preset,
        method,
        policy,
        environment,
        engine,
        at(store, set_),
        iteration=iteration,
        branch=branch or None,
        machine=machine,
    )
    summary = run_iteration(config, quiet=quiet or as_json, verbose=verbose, prefect=not direct)
    if as_json:
        say_json(summary)
