"""The `r3l` command: the top floor. Settings come from presets and ``--set``; errors are one clear message, exit code 2."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from flows import prefect_settings
from r3l.config import Config, compose
from r3l.errors import R3LError

app = typer.Typer(help="R3L post-training of language-model agents, where every stage of every iteration is a table.",
                  no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

HELP = {
    "Run": "iterate train evaluate compare replay",
    "Look": "audit report show status runs why track results presets",
    "Ask and keep": "sql check export compact prune",
    "Prepare": "plan prepare warm-start export-policy",
}

Run = Annotated[str, typer.Option("--run", help="name of the run")]
Preset = Annotated[str, typer.Option("--preset", help="preset of the method r3l: paper, released, or any of `r3l presets`")]
Method = Annotated[str, typer.Option("--method", help="method: r3l, grpo, raft, ...; its own preset is used")]
Policy = Annotated[str, typer.Option("--policy", help="model preset, or a folder with a transformers model")]
EnvironmentName = Annotated[str, typer.Option("--environment", help="environment preset")]
Engine = Annotated[str, typer.Option("--engine", help="transformers_local, vllm_server or vllm_local")]
Machine = Annotated[str, typer.Option("--machine", help="preset of a machine: eight_gpus or two_nodes; empty: this one")]
Set = Annotated[list[str] | None, typer.Option("--set", help="a setting, e.g. method.alpha=5; repeat for more")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no display, only the result")]
AsJson = Annotated[bool, typer.Option("--json", help="the result as JSON")]


def settings(run: str, preset: str, method: str, policy: str, environment: str, engine: str, assignments: list[str] | None,
             **top: Any) -> Config:
    """A `Config` from the options that all running commands share."""
    chosen = preset if method == "r3l" or preset != "paper" else method
    folder = Path(policy)
    given = [] if not folder.is_dir() else [f"policy.path={json.dumps(str(folder))}", f"policy.name={json.dumps(folder.name)}"]
    if engine:
        given.append(f"engine.kind={engine}")
    return compose(model="embedded" if folder.is_dir() else policy, environment=environment, method=chosen,
                   assignments=[*given, *(assignments or [])], run=run, **top)


@app.command()
def iterate(run: Run = "demo", preset: Preset = "paper", method: Method = "r3l", policy: Policy = "embedded",
            environment: EnvironmentName = "alfworld", engine: Engine = "", machine: Machine = "",
            iteration: Annotated[int | None, typer.Option(help="empty: the run's next one")] = None,
            branch: Annotated[str, typer.Option(help="a branch of the run")] = "",
            set_: Set = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Run one training iteration (the flow `r3l`)."""
    config = settings(run, preset, method, policy, environment, engine, set_, iteration=iteration, branch=branch or None, machine=machine)
    from flows.running import run_iteration

    summary = run_iteration(config, quiet=quiet or as_json)
    if as_json:
        typer.echo(json.dumps(summary, default=str))


@app.command()
def train(run: Run = "demo", preset: Preset = "paper", method: Method = "r3l", policy: Policy = "embedded",
          environment: EnvironmentName = "alfworld", engine: Engine = "", machine: Machine = "", iterations: Annotated[int, typer.Option(
              min=1, help="how many further iterations")] = 10, evaluate_every: Annotated[int, typer.Option(
                  min=0, help="evaluate after every K iterations; 0: never")] = 0, set_: Set = None, quiet: Quiet = False,
          as_json: AsJson = False) -> None:
    """Run further iterations of a run, one after another (the flow `r3l-train`)."""
    given = [f"evaluation.every={evaluate_every}", *(set_ or [])]
    config = settings(run, preset, method, policy, environment, engine, given, machine=machine)
    from flows.running import run_training

    done = run_training(config, iterations, quiet=quiet or as_json)
    if as_json:
        typer.echo(json.dumps(done, default=str))


@app.command("warm-start")
def warm_start(out: Annotated[Path | None, typer.Option(help="empty: data/policies/embedded, or household-RECIPE-SEED there")] = None,
               environment: Annotated[str, typer.Option(help="alfworld, or household")] = "alfworld",
               recipe: Annotated[str, typer.Option(help="of the household: easy, in_hand, standard or long")] = "easy",
               seed: Annotated[int, typer.Option(min=0)] = 0,
               minutes: Annotated[float | None, typer.Option(min=0.5, help="in all; household: of training. Empty: 20, long 50")] = None,
               init: Annotated[Path | None, typer.Option(help="go on from the policy of an earlier warm start")] = None) -> None:
    """Make a small starting policy: tokenizer, demonstrations in the world itself, supervised training, held-out figures."""
    def told(line: str) -> None:
        Console(stderr=True).print(line, highlight=False)

    if environment == "household":
        from r3l.training.household_start import household_start

        figures = household_start(out or Path(f"data/policies/household-{recipe}-{seed}"), recipe, seed, minutes, progress=told, init=init)
    else:
        from r3l.training.warm_start import warm_start as make

        figures = make(out or Path("data/policies/embedded"), seed=seed, minutes=minutes or 20.0, init=init, progress=told)
    typer.echo(json.dumps(figures, indent=1))


def group(of: typer.Typer) -> None:
    """Sort the commands of `--help` into boxes; one that is in none stands in the first."""
    boxes = {name: box for box, names in HELP.items() for name in names.split()}
    for command in of.registered_commands:
        name = command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")
        command.rich_help_panel = boxes.get(name, "Commands")


def main() -> None:
    """Entry point: what the project raises on purpose is printed without a traceback."""
    prefect_settings.apply(quiet=True)
    from flows import cli_audit, cli_compare, cli_evaluate, cli_plan, cli_prepare, cli_replay, cli_store

    for module in (cli_audit, cli_compare, cli_evaluate, cli_plan, cli_prepare, cli_replay, cli_store):
        module.register(app)
    group(app)
    try:
        app(standalone_mode=True)
    except R3LError as error:
        Console(stderr=True).print("[red]error:[/red]", Text(str(error)), soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
