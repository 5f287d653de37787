"""`r3l doctor`: whether a policy will work, as a table, before you pay for a run. It does not load Prefect."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.options import AsJson, Engine, EnvironmentName, Machine, Policy, Set
from flows.cli.screen.console import say_json, screen
from flows.cli.settings import settings
from r3l.config.compose import POLICY
from r3l.config.machines import load_machine
from r3l.pipeline.doctor.examine import examine
from r3l.pipeline.doctor.findings import Finding, Verdict

STYLES = {Verdict.WORKS: "green", Verdict.NOTE: "yellow", Verdict.FAILS: "red", Verdict.UNASKED: "dim"}
REFUSED = 2  # exit code


def doctor(
    policy: Policy = POLICY,
    environment: EnvironmentName = "alfworld",
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
    config = settings("doctor", "paper", "r3l", policy, environment, engine, set_, machine=machine)
    there = load_machine(machine) if machine else None
    console = screen(stderr=True)
    findings = []
    with console.status("looking at the policy") as status:
        for one in examine(config, there, sampling):
            findings.append(one)
            status.update(f"looked at: {one.check}")
    if as_json:
        say_json([asdict(one) for one in findings], indent=1)
    else:
        show(screen(), f"{config.policy.name} on {config.environment.kind}", findings)
    if any(one.verdict == Verdict.FAILS for one in findings):
        sys.exit(REFUSED)


def show(console: Console, title: str, findings: Iterable[Finding]) -> None:
    """Print the table: what was looked at, whether it works, what was seen, and what to do."""
    table = Table("", "check", "what was seen", title=title, header_style="bold", show_lines=False)
    for one in findings:
        cell = Text(one.seen)
        if one.advice:
            cell.append(f"\n→ {one.advice}", style="italic")
        table.add_row(Text(one.verdict, style=STYLES[one.verdict]), one.check, cell)
    console.print(table)
