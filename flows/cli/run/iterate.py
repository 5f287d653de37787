"""`r3l iterate`: one iteration of a run."""

from typing import Annotated

import typer

from flows.cli.options import (
    AsJson,
    Branch,
    Changed,
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
    how_much,
    the_run,
)
from flows.cli.screen.console import say_json
from flows.cli.settings import settings
from flows.cli.terminal import run_iteration


def iterate(
    word: RunWord = "",
    run: Run = "",
    preset: Preset = "",
    method: Method = "",
    policy: Policy = "",
    environment: EnvironmentName = "",
    engine: Engine = "",
    machine: Machine = "",
    iteration: Annotated[int | None, typer.Option(help="number of the iteration; empty: the run's next one")] = None,
    branch: Branch = "",
    direct: Direct = False,
    set_: Set = None,
    change: Changed = False,
    store: Root = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run one training iteration: the flow `r3l`, or its stages without Prefect. A run that is there goes on with the
    settings of its newest iteration; what is given here comes on top, from this iteration on."""
    how_much(quiet, verbose)
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
        change=change or None,
    )
    summary = run_iteration(config, quiet=quiet or as_json, verbose=verbose, prefect=not direct)
    if as_json:
        say_json(summary)
