"""Results kept in a file, so that an experiment can grow after its runs have left the store."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from r3l.errors import ConfigError
from r3l.lab.study.experiment import Cell, Experiment

Rows = list[dict[str, Any]]


class Answer(NamedTuple):
    """What a question found in the tables of the runs at one learning rate (None: the model's)."""

    title: str
    rate: float | None
    rows: Rows


@dataclass(frozen=True, slots=True)
class Kept:
    """Curves and metrics by run, and what questions found in those runs' tables."""

    cells: dict[str, Cell] = field(default_factory=dict)
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    metrics: dict[str, Rows] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    test_episodes: int = 0
    experiment: Experiment | None = None  # as it was then; None: there is no such file
    size: str = ""
    policies: dict[str, str] = field(default_factory=dict)  # digest of the starting policy

    def still_hold(self, cells: Sequence[Cell], starts: dict[tuple[int, float | None], str]) -> list[str]:
        """Name the runs of those cells that are kept and were made with the same settings and from the policy that the
        stored runs of that seed and rate began from (`starts`, digests): arms are compared so, and a policy made anew
        need not be the same."""
        return [
            cell.config.run
            for cell in cells
            if cell.config.run in self.cells
            and self.cells[cell.config.run].config == cell.config
            and starts.get((cell.seed, cell.rate)) in (None, self.policies.get(cell.config.run))
        ]


def kept_results(file: Path) -> Kept:
    """Read what an earlier `r3l compare` wrote; nothing where there is no such file.

    Raises:
        ConfigError: the file is not what `r3l compare` writes.
    """
    if not file.is_file():
        return Kept()
    try:
        record = json.loads(file.read_text())
        experiment = Experiment.model_validate(record["experiment"])
        runs = {cell["run"] for cell in record["cells"]}
        return Kept(
            cells={cell.config.run: cell for cell in experiment.cells(record["size"]) if cell.config.run in runs},
            curves={run: {int(at): rate for at, rate in curve.items()} for run, curve in record["curves"].items()},
            metrics=record["metrics"],
            answers=[Answer(**one) for one in record["answers"]],
            test_episodes=record["test_episodes"],
            policies=record["policies"],
            experiment=experiment,
            size=record["size"],
        )
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise ConfigError(
            f"kept results {file}: {error!r}; move the file away to begin the experiment again"
        ) from error


def with_shared_runs(kept: Kept, folder: Path, experiment: Experiment, size: str) -> Kept:
    """Add to `kept` the runs of this experiment's names that the other files in `folder` keep: experiments that share a
    `runs` name take each other's runs from a store, and so they do from kept results. A file counts where it has as
    many iterations and evaluations; `Kept.still_hold` compares settings and starting policies.

    Raises:
        ConfigError: a file is not what `r3l compare` writes.
    """
    names = {cell.config.run for cell in experiment.cells(size)}
    of = experiment.sizes[size]
    for file in sorted(folder.glob(f"*-{size}.json")):
        other = kept_results(file)
        if other.experiment is None or other.experiment.name == experiment.name:
            continue
        theirs = other.experiment.sizes[other.size]
        if (theirs.iterations, theirs.evaluate_every) != (of.iterations, of.evaluate_every):
            continue
        common_runs = (other.cells.keys() & names) - kept.cells.keys()
        kept = replace(
            kept,
            cells=kept.cells | {run: other.cells[run] for run in common_runs},
            curves=kept.curves | {run: other.curves[run] for run in common_runs},
            metrics=kept.metrics | {run: other.metrics[run] for run in common_runs},
            policies=kept.policies | {run: other.policies[run] for run in common_runs if run in other.policies},
            test_episodes=max(kept.test_episodes, other.test_episodes) if common_runs else kept.test_episodes,
        )
    return kept
