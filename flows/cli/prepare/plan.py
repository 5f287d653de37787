"""`r3l plan`: what an iteration will need, before you pay for it. It loads neither Prefect nor torch."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flows.cli.options import Root
from flows.cli.screen.console import say_json, screen
from r3l.config import Config, compose
from r3l.config.machines import Machine, load_machine
from r3l.engines.policy_names import model_of
from r3l.planning.fits import Fit, fits
from r3l.planning.observed import observe_run
from r3l.planning.plan import ResourcePlan, make_plan
from r3l.store.stage import Store


def plan(
    policy: Annotated[str, typer.Option(help="policy preset, e.g. qwen2.5-7b, or a folder")] = "qwen2.5-1.5b",
    environment: Annotated[str, typer.Option(help="environment preset")] = "alfworld",
    preset: Annotated[str, typer.Option(help="method preset")] = "paper",
    machine: Annotated[str, typer.Option(help="preset of a machine: one_gpu, eight_gpus or two_nodes")] = "eight_gpus",
    gpu: Annotated[
        str, typer.Option(help="GPU: l4, rtx4090, l40s, a100, h20, h100 or h200; empty: the machine's own")
    ] = "",
    like: Annotated[str, typer.Option(help="run of the store whose figures replace the paper's")] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting, e.g. rollout.tasks=32; may be repeated")
    ] = None,
    store: Root = "",
    as_json: Annotated[bool, typer.Option("--json", help="print the figures as JSON")] = False,
) -> None:
    """Estimate what one iteration needs: memory, tokens, time and storage, each figure with its source. Run
    nothing."""
    model, assignments = model_of(policy, machine)
    config = compose(
        policy=model, environment=environment, method=preset, machine=machine, assignments=[*assignments, *(set_ or [])]
    )
    there = load_machine(machine, gpu=gpu or None)
    resources = make_plan(config, there, observe_run(Store.open(store, reading=True), like) if like else None)
    fitting = fits(machine, config) if there.shared else []
    if as_json:
        say_json(asdict(resources) | ({"fits": [asdict(one) for one in fitting]} if fitting else {}), indent=1)
    else:
        show(screen(), config, there, resources)
        show_fits(screen(), fitting)


def show(console: Console, config: Config, machine: Machine, resources: ResourcePlan) -> None:
    """Print the plan as a table, what it takes for granted below it, and what will not fit in red."""
    console.print(
        f"{config.policy.name} on {config.environment.kind}, {config.method.kind}, {config.rollout.tasks} tasks x N = "
        f"{config.rollout.group_size}, {_turns(machine)}: one iteration",
    )
    table = Table("", "figure", "value", "from", header_style="bold")
    before = ""
    for figure in resources.figures:
        table.add_row(
            "" if figure.section == before else figure.section,
            figure.name,
            shown(figure.value, figure.unit),
            figure.source,
        )
        before = figure.section
    console.print(table)
    for line in resources.assumptions:
        console.print(f"- {line}", style="dim")
    for line in resources.troubles:
        console.print(f"does not fit: {line}", style="red")


def _turns(machine: Machine) -> str:
    if machine.shared:
        return f"{machine.training_gpus} {machine.gpu} samples and trains in turns"
    return f"{machine.engine_gpus} {machine.gpu} sample, {machine.training_gpus} train"


def show_fits(console: Console, fitting: list[Fit]) -> None:
    """Print what can be trained on one GPU, a row per policy and a column per size."""
    if not fitting:
        return
    rows: dict[tuple[str, str], list[str]] = {}
    for one in fitting:
        cell = f"{one.context_tokens:,} tokens" if one.context_tokens else f"no: {one.needs_gb:.0f} GB"
        rows.setdefault((one.policy, "LoRA" if one.adapter == "lora" else "all weights"), []).append(cell)
    sizes = dict.fromkeys(f"{one.memory_gb:g} GB ({one.gpu})" for one in fitting)
    table = Table("policy", "trains", *sizes, header_style="bold", title="What fits on one GPU: the longest context")
    for (policy, weights), cells in rows.items():
        table.add_row(policy, weights, *cells)
    console.print(table)


def shown(value: float, unit: str) -> str:
    digits = 3
    if abs(value) >= 1:
        digits = 0 if abs(value) >= 100 else 1
    return f"{value:,.{digits}f} {unit}".rstrip()
