"""The cells of an experiment, one after another or in parallel processes. Stored cells are not run again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context

from r3l.config import Config
from r3l.errors import R3LError
from r3l.lab.study.experiment import Cell, Experiment
from r3l.pipeline.making import ensure_policy
from r3l.store.stage import Store


@dataclass(frozen=True, slots=True)
class Ended:
    """A cell that ended: complete, out of time or with an error; and the remaining time of all other cells."""

    cell: Cell
    whole: bool
    seconds: float
    number: int
    of: int
    left_s: float
    error: str = ""
    again: str = ""  # how far it agrees with a kept run

    def __str__(self) -> str:
        how = self.error or ("done" if self.whole else "out of time: goes on next time")
        return (
            f"run {self.number} of {self.of}, {self.cell.config.run}: {how}, {self.seconds:.0f} s; about "
            f"{self.left_s / 60:.0f} min left{self.again and f'; {self.again}'}"
        )


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
    configs = [cell.config.kept_at(store.root) for cell in cells]

    def unlike(place: int) -> str:
        return other_start(cells[place], ensure_policy(configs[place]).digest, begun or {})

    for number, (place, outcome) in enumerate(outcomes(experiment, configs, iterations, workers, until, unlike), 1):
        whole, seconds, error = outcome
        # All cells are taken to be of one length: arms differ by less than a machine's load does.
        rest = (time.time() - began) / number * (len(cells) - number)
        yield Ended(cells[place], whole, seconds, number, len(cells), rest, error)


Start = tuple[int, float | None]  # a seed and a learning rate


def other_start(cell: Cell, digest: str, begun: Mapping[Start, str]) -> str:
    """Say why the cell can't be compared with the finished runs of its seed and learning rate; empty: it can."""
    digest_of_runs = begun.get((cell.seed, cell.rate))
    if digest_of_runs in (None, digest):
        return ""
    return (
        f"left out: {cell.config.policy.path} has the digest {digest}, and the finished runs of seed {cell.seed} began "
        f"from {digest_of_runs}; put the policy with that digest there, or begin anew with an empty --results and "
        "--store"
    )


Outcome = tuple[bool, float, str]


def outcomes(
    experiment: Experiment,
    configs: Sequence[Config],
    iterations: int,
    workers: int,
    until: float,
    unlike: Callable[[int], str],
) -> Iterator[tuple[int, Outcome]]:
    """Yield (index, outcome) of every cell that was begun before `until`. `unlike` makes a cell's starting policy where
    it is missing, once before several cells want to make it, and says why the cell is left out."""
    experiment_json = experiment.model_dump_json()
    if workers == 0:
        for place, config in enumerate(configs):
            if time.time() > until:
                return
            if error := unlike(place):
                yield place, (False, 0.0, error)
            else:
                yield place, one_cell(experiment_json, config.model_dump_json(), iterations, until)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        pending: dict[Future[Outcome], int] = {}
        waiting = list(enumerate(configs))
        while waiting or pending:
            while waiting and len(pending) < workers and time.time() <= until:
                place, config = waiting.pop(0)
                if error := unlike(place):
                    yield place, (False, 0.0, error)
                    continue
                pending[pool.submit(one_cell, experiment_json, config.model_dump_json(), iterations, until)] = place
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                yield pending.pop(future), future.result()


def one_cell(experiment: str, config: str, iterations: int, until: float) -> Outcome:
    """Run a cell, wherever that is. An error of the project's own is an outcome: the other cells go on."""
    from r3l.lab.study.cell import run_cell

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
