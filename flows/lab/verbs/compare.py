"""`r3l compare`: the cells of an experiment."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Direct, Root
from flows.cli.screen.console import say, screen
from flows.serving import tied
from r3l.errors import ConfigError
from r3l.system.home import locate


def compare(
    experiment: Annotated[str, typer.Argument(help="file of the experiment, or a name in data/experiments")],
    size: Annotated[str, typer.Option(help="size: laptop, paper, or another one of the experiment")] = "laptop",
    plan: Annotated[bool, typer.Option("--plan", help="print what would be run and its cost, and run nothing")] = False,
    page: Annotated[bool, typer.Option("--page", help="run nothing: make the page of stored and kept runs")] = False,
    store: Root = "",
    results: Annotated[str, typer.Option(help="folder for tables, plots and figures")] = "data/results",
    workers: Annotated[int, typer.Option(min=0, help="cells at the same time, each in a process; 0: in this one")] = 0,
    minutes: Annotated[float, typer.Option(min=0, help="begin no iteration after so many minutes; 0: no limit")] = 0,
    arms: Annotated[str, typer.Option(help="only these, separated by commas")] = "",
    seeds: Annotated[str, typer.Option(help="only these, separated by commas")] = "",
    rates: Annotated[str, typer.Option(help="only these, separated by commas: 0.0003,0.001")] = "",
    direct: Direct = False,
) -> None:
    """Run or resume the cells of an experiment, and make its table, plots and page (the flow `r3l-compare`)."""
    from r3l.lab.study.experiment import load_experiment, plan_lines
    from r3l.lab.study.whole import Only, run_experiment

    only = Only(arms, seeds, rates)
    path = experiment if experiment.endswith(".toml") else str(Path("data/experiments", f"{experiment}.toml"))
    if plan and page:
        raise ConfigError("--plan and --page contradict each other: leave one out")
    if plan:
        asked = load_experiment(locate(path))
        for line in plan_lines(asked, size, only.of(asked.cells(size))):
            say(line)
        return
    if direct or page:
        console = screen(stderr=True)
        say(
            run_experiment(
                path, size, store, results, workers, minutes, only, lambda ended: console.print(str(ended)), page
            )
        )
    else:
        from flows.cli.terminal import on_prefect

        tied.begin()  # before Prefect is imported
        from flows.lab.compare import compare as flow

        with on_prefect():
            say(flow(path, size, store, results, workers, minutes, arms, seeds, rates))
