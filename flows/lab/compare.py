"""The flow `r3l-compare`: run or resume every missing cell of an experiment, then make its tables. A cell is an
ordinary run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact

from flows.artifacts import artifact_key
from flows.cancellation import run_attended
from r3l.errors import ConfigError
from r3l.lab.study.cells import Ended, run_cells
from r3l.lab.study.experiment import Cell, load_experiment
from r3l.lab.study.kept import kept_results, with_shared_runs
from r3l.lab.study.pages.results_page import file_of, page, write_results
from r3l.lab.study.results import read_results
from r3l.lab.study.verdicts import statistics
from r3l.pipeline.logs import log
from r3l.store.stage import Store
from r3l.system.home import locate


@flow(name="r3l-compare", flow_run_name="compare {path}")
def compare(
    path: str,
    size: str = "laptop",
    store: str = "",
    results: str = "data/results",
    workers: int = 1,
    minutes: float = 0,
    arms: str = "",
    seeds: str = "",
    rates: str = "",
) -> str:
    """Run what is missing of an experiment, and make its table, plots and page.

    Args:
        path: the experiment's file, e.g. data/experiments/main_alfworld.toml.
        size: a size of the experiment: laptop, or paper.
        store: folder or s3:// address of the store; empty: R3L_STORE, else data/runs.
        results: folder that gets EXPERIMENT-SIZE.md, .json and a folder of plots; runs that the .json there keeps are
            not run again.
        workers: cells side by side, 1 or more, each in a process of its own: their stages are no task runs of this
            flow.
        minutes: begin no further iteration after so many; 0: no bound.
        arms: only these arms, with commas; empty: all.
        seeds: only these seeds, with commas; empty: all.
        rates: only these learning rates, with commas, written as in 0.0003; empty: all.
    """
    return run_attended(
        lambda: compared(path, size, store, results, max(1, workers), minutes, Only(arms, seeds, rates))
    )


def compared(path: str, size: str, store: str, results: str, workers: int, minutes: float, only: Only) -> str:
    """Do what the flow does, with its artifacts."""
    experiment = load_experiment(locate(path))
    progress: UUID = create_progress_artifact(progress=0.0, key=artifact_key(f"compare-{experiment.name}", "progress"))  # type: ignore[assignment]

    def on_ended(ended: Ended) -> None:
        log().info("%s", ended)
        update_progress_artifact(progress, progress=100.0 * ended.number / ended.of)

    page_text = run_experiment(path, size, store, results, workers, minutes, only, on_ended)
    create_markdown_artifact(
        markdown=page_text, key=artifact_key(f"compare-{experiment.name}", ""), description=experiment.title
    )
    return page_text


def run_experiment(
    path: str,
    size: str,
    store: str,
    results: str,
    workers: int,
    minutes: float,
    only: Only,
    on_ended: Callable[[Ended], None],
    page_alone: bool = False,
) -> str:
    """Do what the flow does, without Prefect. The result is the page.

    Args:
        page_alone: run nothing: the page is that of the stored and the kept runs.

    Raises:
        ConfigError: no such experiment, size, arm, seed or rate, settings that can't be, or no scipy.
    """
    experiment, run_store = load_experiment(locate(path)), Store.open(store)
    statistics()  # what the page needs is missed before the runs, not after them
    wanted_cells = only.of(experiment.cells(size))
    file = file_of(locate(results), experiment, size)
    past_results = with_shared_runs(kept_results(file), file.parent, experiment, size)
    results_before = read_results(experiment, size, run_store, past_results)
    open_runs = set(results_before.unfinished)
    missing_cells = [cell for cell in wanted_cells if cell.config.run in open_runs and not page_alone]
    for ended in run_cells(
        experiment,
        missing_cells,
        experiment.sizes[size].iterations,
        run_store,
        min(workers, os.cpu_count() or 1),
        minutes or math.inf,
        {
            (cell.seed, cell.rate): results_before.policies[cell.config.run]
            for cell in results_before.cells
            if cell.config.run in results_before.policies
        },
    ):
        on_ended(ended)
    results_now = read_results(experiment, size, run_store, past_results) if missing_cells else results_before
    write_results(locate(results), results_now)
    return page(results_now)


class Only(NamedTuple):
    """A part of an experiment: arms, seeds and learning rates by name, with commas; empty: all."""

    arms: str = ""
    seeds: str = ""
    rates: str = ""

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """Raise `ConfigError` for an arm, a seed or a rate that none of the cells has."""
        arms = choose_names(self.arms, [cell.arm.name for cell in cells])
        seeds = choose_names(self.seeds, [str(cell.seed) for cell in cells])
        rates = choose_names(self.rates, [rate_name(cell) for cell in cells])
        return [
            cell for cell in cells if cell.arm.name in arms and str(cell.seed) in seeds and rate_name(cell) in rates
        ]


def rate_name(cell: Cell) -> str:
    return f"{cell.config.training.learning_rate:g}"


def choose_names(text: str, offers: list[str]) -> list[str]:
    """Choose those of the names that are asked for. Raise `ConfigError` for one that is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if wrong := [name for name in names if name not in offers]:
        raise ConfigError(f"{', '.join(wrong)}: this experiment has {', '.join(dict.fromkeys(offers))}")
    return names or offers
