"""The `r3l` command. Settings come from presets and ``--set``; errors are one clear message, exit code 2."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from typer.models import CommandInfo

from flows import prefect_settings
from flows.cli.options import (
    AsJson,
    Branch,
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
    settings,
    the_run,
)
from flows.cli.screen.console import say, screen
from r3l.errors import Interrupted, R3LError
from r3l.home import home
from r3l.pasted import runnable
from r3l.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    epilog="--debug, with any command: the traceback of what goes wrong.",
)

ENDED = 130  # exit code where Ctrl-C, a cancel or SIGTERM ended the work: as shells have it

HELP = {
    "Run": "iterate train evaluate compare replay",
    "Serve": "up down server register prefect",
    "Look": "audit report show status runs why credit track results presets",
    "Ask and keep": "sql check export compact prune",
    "Prepare": "doctor plan new prepare warm-start export-policy",
}


def tell_version(asked: bool) -> None:
    if asked:
        say(f"r3l {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=tell_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """R3L post-training of language-model agents, where every stage of every iteration is a table."""


@app.command()
def iterate(
    word: RunWord = "",
    run: Run = "",
    preset: Preset = "paper",
    method: Method = "r3l",
    policy: Policy = "embedded",
    environment: EnvironmentName = "alfworld",
    engine: Engine = "",
    machine: Machine = "",
    iteration: Annotated[int | None, typer.Option(help="number of the iteration; empty: the run's next one")] = None,
    branch: Branch = "",
    set_: Set = None,
    store: Root = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run one training iteration (the flow `r3l`)."""
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
    from flows.cli.terminal import run_iteration

    summary = run_iteration(config, quiet=quiet or as_json, verbose=verbose)
    if as_json:
        say(json.dumps(summary, default=str))


@app.command()
def train(
    word: RunWord = "",
    run: Run = "",
    preset: Preset = "paper",
    method: Method = "r3l",
    policy: Policy = "embedded",
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
    from flows.cli.terminal import run_training

    done = run_training(config, iterations, quiet=quiet or as_json, verbose=verbose)
    if as_json:
        say(json.dumps(done, default=str))


@app.command("warm-start")
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
        float | None, typer.Option(min=0.5, help="minutes in all (household: of training); empty: 20, long 50")
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


def group(of: typer.Typer) -> None:
    """Sort the commands of `--help` into boxes; a command without a box goes into the first one."""
    boxes = {name: box for box, names in HELP.items() for name in names.split()}
    for command in of.registered_commands:
        command.rich_help_panel = boxes.get(named(command), "Commands")


def named(command: CommandInfo) -> str:
    """Return the name of a command on the command line."""
    return command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")


def main() -> None:
    """Run the command line. An error is one line and an exit code (2: refused input; 3: a fault of r3l or of its
    environment); ``--debug`` shows the traceback."""
    debug = "--debug" in sys.argv[1:]
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        command()
    except Interrupted as ended:
        screen(stderr=True).print(Text("ended:", style="yellow"), str(ended), soft_wrap=True)
        sys.exit(ENDED)
    except Exception as error:
        if debug:
            raise
        refused = isinstance(error, R3LError)
        first = next(iter(str(error).strip().splitlines()), "")
        said = runnable(str(error)) if refused else f"{type(error).__name__}: {first} (--debug shows where)"
        screen(stderr=True).print(Text("error:", style="red"), said, soft_wrap=True)
        sys.exit(2 if refused else 3)


def command() -> None:
    """Find the command's module and run it. Commands that only read tables load no other module, so that they start
    faster."""
    prefect_settings.apply(quiet=True)
    from flows.cli import tables

    tables.register(app)
    if not set(sys.argv[1:2]) & {named(one) for one in app.registered_commands}:
        from flows.cli import audit, compare, credit, doctor, evaluate, plan, prepare, replay, server

        for module in (audit, compare, credit, doctor, evaluate, plan, prepare, replay, server):
            module.register(app)
    group(app)
    app(standalone_mode=True)


if __name__ == "__main__":
    main()
