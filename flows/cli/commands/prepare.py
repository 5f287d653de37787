"""Commands that come before a run: will it work, what will it cost, where is its data?"""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.options import MACHINES, AsJson, Branch, Engine, EnvironmentName, Machine, Policy, Root, Set
from flows.cli.screen.console import say, say_json, screen
from r3l.config import Config, machines
from r3l.config.compose import DEFAULTS, POLICY
from r3l.errors import ConfigError
from r3l.pipeline.doctor.findings import Finding, Verdict
from r3l.planning.memory import Fit
from r3l.planning.plan import ResourcePlan
from r3l.store.stage import Store

STYLES = {Verdict.WORKS: "green", Verdict.NOTE: "yellow", Verdict.FAILS: "red", Verdict.UNASKED: "dim"}
REFUSED = 2  # exit code


def doctor(
    policy: Policy = POLICY,
    environment: EnvironmentName = DEFAULTS["environments"],
    engine: Engine = "",
    machine: Machine = "",
    set_: Set = None,
    sampling: Annotated[
        bool,
        typer.Option(
            "--sample/--no-sample", help="load the policy, compare its canary, sample a reply and a reflection"
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Test whether a policy will work: weights, template, context, memory, canary, a reply, a reflection."""
    from flows.cli.settings import settings
    from r3l.pipeline.doctor.examine import examine

    config = settings("doctor", "paper", "r3l", policy, environment, engine, set_, machine=machine)
    there = machines.load_machine(machine) if machine else None
    console = screen(stderr=True)
    findings = []
    with console.status("looking at the policy") as status:
        for one in examine(config, there, sampling):
            findings.append(one)
            status.update(f"looked at: {one.check}")
    if as_json:
        say_json([asdict(one) for one in findings], indent=1)
    else:
        show_findings(screen(), f"{config.policy.name} on {config.environment.kind}", findings)
    if any(one.verdict == Verdict.FAILS for one in findings):
        sys.exit(REFUSED)


def show_findings(console: Console, title: str, findings: Iterable[Finding]) -> None:
    """Print the table: what was looked at, whether it works, what was seen, and what to do."""
    table = Table("", "check", "what was seen", title=title, header_style="bold", show_lines=False)
    for one in findings:
        cell = Text(one.seen)
        if one.advice:
            cell.append(f"\n→ {one.advice}", style="italic")
        table.add_row(Text(one.verdict, style=STYLES[one.verdict]), one.check, cell)
    console.print(table)


def plan(
    policy: Annotated[str, typer.Option(help="policy preset, e.g. qwen2.5-7b, or a folder")] = "qwen2.5-1.5b",
    environment: Annotated[str, typer.Option(help="environment preset")] = DEFAULTS["environments"],
    preset: Annotated[str, typer.Option(help="method preset")] = "paper",
    machine: Annotated[str, typer.Option(help=MACHINES)] = "eight_gpus",
    gpu: Annotated[
        str, typer.Option(help="GPU: l4, rtx4090, l40s, a100, h20, h100 or h200; empty: the machine's own")
    ] = "",
    like: Annotated[str, typer.Option(help="run that tokens, time and the tables' size are taken from")] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting, e.g. rollout.tasks=32; may be repeated")
    ] = None,
    store: Root = "",
    as_json: AsJson = False,
) -> None:
    """Estimate what one iteration needs: memory and storage, and, as a run had them, tokens and time. Each figure has
    its source. Run nothing."""
    from r3l.config import compose
    from r3l.engines.policy_names import model_of
    from r3l.planning.memory import fits
    from r3l.planning.plan import make_plan, observe_run

    model, assignments = model_of(policy, machine)
    config = compose(
        policy=model, environment=environment, method=preset, machine=machine, assignments=[*assignments, *(set_ or [])]
    )
    there = machines.load_machine(machine, gpu=gpu or None)
    resources = make_plan(config, there, observe_run(Store.open(store, reading=True), like) if like else None)
    fitting = fits(machine, config) if there.shared else []
    if as_json:
        say_json(asdict(resources) | ({"fits": [asdict(one) for one in fitting]} if fitting else {}), indent=1)
    else:
        show_plan(screen(), config, there, resources)
        show_fits(screen(), fitting)


def show_plan(console: Console, config: Config, machine: machines.Machine, resources: ResourcePlan) -> None:
    """Print the plan as a table, what it takes for granted below it, and what will not fit in red."""
    console.print(
        f"{config.policy.name} on {config.environment.kind}, {config.method.kind}, {config.rollout.tasks} tasks x N = "
        f"{config.rollout.group_size}, {_turns(machine)}: one iteration"
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


def _turns(machine: machines.Machine) -> str:
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


def new(
    what: Annotated[str, typer.Argument(help="environment or method")],
    name: Annotated[str, typer.Argument(help="what it is called by: small letters, digits and underscores")],
    into: Annotated[Path, typer.Option(help="the folder that the package is put into")] = Path(),
) -> None:
    """Write a package with an environment or a method of your own to start from; nothing in r3l is changed."""
    from r3l.scaffold.package import write_package
    from r3l.system.pasted import program

    folder = write_package(what, name, into)
    (module,) = (path.stem for path in folder.glob("r3l_*.py"))
    say(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    say(f"edit {folder / module}.py; then, in the environment that r3l is installed in:")
    say(f"  pip install -e {folder}")
    say(f"  {program()} iterate --run try --{what} {name}")


def prepare(
    kind: Annotated[str, typer.Argument(help="a kind of environment, or a plug-in's; any other: lists them")],
    data_root: Annotated[Path, typer.Option(help="folder for the data")] = Path("data/tasks"),
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting of the environment, e.g. games=downloaded")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="only this split, e.g. test; may be repeated")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="alfworld: accept a folder that has only a part of the downloaded games")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="fetch nothing, only report what is missing")] = False,
) -> None:
    """Find or download an environment's data, verify counts and hashes, write the task manifest."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from r3l import plugins
    from r3l.config.compose import assign
    from r3l.environments.prepare.prepare import prepare as make_ready

    if plugins.is_dotted(kind):
        plugins.allow(kind)
    settings = assign({"games": "downloaded", "partial": True} if partial else {}, set_ or [])
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen(stderr=True), transient=True) as bars:
        bar_of: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bar_of:
                bar_of[what] = bars.add_task(what, total=total)
            bars.update(bar_of[what], completed=done, total=total)

        ready = make_ready(kind, data_root, settings, splits=split or (), download=not offline, progress=report)
    for note in ready.notes:
        say(note)
    say_json(ready.splits)
    say(f"{ready.kind}: ready, listed in {ready.manifest}")


def export_policy(
    policy: Annotated[str, typer.Argument(help="a run's name, or a policy's folder")],
    out: Annotated[Path | None, typer.Argument(help="folder for the model; empty: data/export/NAME")] = None,
    base: Annotated[Path | None, typer.Option(help="an adapter's base model; empty: what it names itself")] = None,
    iteration: Annotated[
        int | None,
        typer.Option(min=0, help="iteration whose policy is exported; empty: the best held-out one, else the newest"),
    ] = None,
    branch: Branch = "",
    to_hub: Annotated[str, typer.Option(metavar="ORG/NAME", help="upload it to the hub, with a model card")] = "",
    public: Annotated[bool, typer.Option("--public", help="make it public; otherwise it is private")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="write the folder and its card, and upload nothing")
    ] = False,
    store: Root = "",
) -> None:
    """Write a policy as one transformers model: an adapter is merged into its base. That of a run has a model card."""
    from r3l.pipeline.export.policy import checked_name, export_run, push
    from r3l.system.home import locate
    from r3l.training.export import export_policy as export

    if (public or dry_run) and not to_hub:
        raise ConfigError(f"--{'public' if public else 'dry-run'} is for an upload: name it with --to-hub ORG/NAME")
    title = checked_name(to_hub) if to_hub else ""
    goal = out or locate(Path("data/export", (title or policy).rpartition("/")[2]))
    if Path(policy).is_dir():
        if to_hub or iteration is not None:
            raise ConfigError(
                f"{policy} is a folder, and a model card is made from a run: give the run's name, and --iteration"
            )
        export(policy, str(goal), str(base) if base else None)
    else:
        export_of_run = export_run(
            Store.open(store, reading=True), policy, goal, branch=branch, iteration=iteration, title=title
        )
        screen(stderr=True).print(f"the policy of iteration {export_of_run.iteration} of {export_of_run.run}")
        if to_hub and not dry_run:
            say(
                push(
                    goal,
                    title,
                    f"Run {export_of_run.run}, iteration {export_of_run.iteration}, policy {export_of_run.digest}",
                    public,
                )
            )
    say(str(goal))
