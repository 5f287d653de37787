"""A whole experiment: run or resume what is missing of it, then write its results and make its page."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from r3l.errors import ConfigError
from r3l.lab.study.again import STAGES, agreement
from r3l.lab.study.cells import Ended, run_cells
from r3l.lab.study.experiment import Cell, load_experiment
from r3l.lab.study.kept import kept_results, with_shared_runs
from r3l.lab.study.pages.results_page import file_of, page, write_results
from r3l.lab.study.results import read_results
from r3l.lab.study.verdicts import statistics
from r3l.store.stage import Store
from r3l.system.home import locate


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
    """Run what is missing of an experiment. The result is its page.

    Args:
        page_alone: run nothing: the page is that of the stored and the kept runs.

    Raises:
        ConfigError: no such experiment, size, arm, seed or rate, settings that can't be, or no scipy.
    """
    experiment, run_store = load_experiment(locate(path)), Store.open(store)
    statistics()  # what the page needs is missed before the runs, not after them
    wanted_cells = only.of(experiment.cells(size))
    file = file_of(locate(results), experiment, size)
    stages_file = locate(Path("data/results", file.stem, STAGES))  # those that ship, wherever the results go
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
        run = ended.cell.config.run
        on_ended(replace(ended, again=agreement(run_store, run, stages_file) if ended.whole else ""))
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
