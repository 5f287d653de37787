"""The cells of an experiment, one after another or in parallel processes. Stored cells are not run again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context

from r3l.config import Config
from r3l.errors import R3LError
from r3l.experiments.experiment import Cell, Experiment
from r3l.pipeline.policies import starting_policy
from r3l.store.stage import Store


@dataclass(frozen=True, slots=True)
class Ended:
    """A cell that ended: complete, out of time or with an error; and the remaining time of all other cells (NaN: it was
    not begun)."""

    cell: Cell
    whole: bool
    seconds: float
    number: int
    of: int
    left_s: float
    error: str = ""

    def __str__(self) -> str:
        how = self.error or ("done" if self.whole else "out of time: goes on next time")
        left = "" if math.isnan(self.left_s) else f", {self.seconds:.0f} s; about {self.left_s / 60:.0f} min left"
        return f"run {self.number} of {self.of}, {self.cell.config.run}: {how}{left}"


def run_cells(
    experiment: Experiment,
    cells: Sequence[Cell],
    iterations: int,
    store: Store,
    workers: int = 0,
    minutes: float = math.inf,
    begun: Mapping[Start, str] | None = None,
) -> Iterator[Ended]:
    """Run or resume cells, and report each one as it ends.

    Args:
        workers: processes side by side, each with a cell; 0: in this process.
        minutes: after so many no further iteration begins, and no further starting policy is made.
        begun: digest of the policy that the finished runs of a seed and learning rate began from. A cell whose policy
            has another one is left out with an error, since arms are compared from the same weights.
    """
    until, began = time.time() + 60 * minutes, time.time()
    configs = {cell.config.run: cell.config.kept_at(store.root) for cell in cells}
    made: dict[str, str] = {}
    for config in {config.policy.path: config for config in configs.values()}.values():
        if time.time() <= until:  # made once, before several cells want to make it
            made[config.policy.path] = starting_policy(config).digest
    apart = {
        cell.config.run: error
        for cell in cells
        if (error := other_start(cell, made.get(configs[cell.config.run].policy.path), begun or {}))
    }
    alike = [cell for cell in cells if cell.config.run not in apart]
    for number, cell in enumerate((cell for cell in cells if cell.config.run in apart), 1):
        yield Ended(cell, False, 0.0, number, len(cells), math.nan, apart[cell.config.run])
    ended = outcomes(experiment, [configs[cell.config.run] for cell in alike], iterations, workers, until)
    for number, (place, outcome) in enumerate(ended, 1):
        whole, seconds, error = outcome
        rest = (time.time() - began) / number * (len(alike) - number)
        yield Ended(alike[place], whole, seconds, len(apart) + number, len(cells), rest, error)


Start = tuple[int, float | None]  # a seed and a learning rate


def other_start(cell: Cell, digest: str | None, begun: Mapping[Start, str]) -> str:
    """Return why the cell can't be compared with the finished runs of its seed and learning rate; empty: it can."""
    known = begun.get((cell.seed, cell.rate))
    if digest is None or known in (None, digest):
        return ""
    return (
        f"left out: {cell.config.policy.path} has the digest {digest}, and the finished runs of seed {cell.seed} began "
        f"from {known}; put the policy with that digest there, or begin anew with --results FOLDER"
    )


Outcome = tuple[bool, float, str]


def outcomes(
    experiment: Experiment, configs: Sequence[Config], iterations: int, workers: int, until: float
) -> Iterator[tuple[int, Outcome]]:
    """Yield (index, outcome) of every cell that was begun before `until`."""
    experiment_json = experiment.model_dump_json()
    if workers == 0:
        for place, config in enumerate(configs):
            if time.time() > until:
                return
            yield place, one_cell(experiment_json, config.model_dump_json(), iterations, until)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        pending: dict[Future[Outcome], int] = {}
        waiting = list(enumerate(configs))
        while waiting or pending:
            while waiting and len(pending) < workers and time.time() <= until:
                place, config = waiting.pop(0)
                pending[pool.submit(one_cell, experiment_json, config.model_dump_json(), iterations, until)] = place
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                yield pending.pop(future), future.result()


def one_cell(experiment: str, config: str, iterations: int, until: float) -> Outcome:
    """Run a cell, wherever that is. An error of the project's own is an outcome: the other cells go on."""
    from r3l.experiments.cell import run_cell

    began, of = time.time(), Experiment.model_validate_json(experiment)
    try:
        whole = run_cell(
            Config.model_validate_json(config),
            iterations,
            until,
            forks=of.forks,
            forked_iterations=of.forked_iterations,
        )
        return whole, time.time() - began, ""
    except R3LError as error:
        return False, time.time() - began, f"{type(error).__name__}: {error}"
