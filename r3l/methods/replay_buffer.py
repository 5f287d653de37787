"""What an update learns from again.

The experience replay buffer, on where the behaviour policy is renewed less than every update (S > 1): the most recent
groups of earlier iterations that are not used up. The memory of corrections: meta-task rows that won, one per task.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from r3l.records import TrainingRow

META_TASKS = ("reflect", "retry")  # roles of meta-task rows


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group of an earlier iteration. `age`: iterations since it was sampled; `uses`: updates that have learned from
    it."""

    group_id: str
    age: int
    uses: int


def priority(candidate: Candidate, decay: float) -> float:
    """Compute decay ** -age: 1 for a fresh group, halved with each iteration at decay 2."""
    return float(decay**-candidate.age)


def replay_count(fresh: int, share: float, available: int) -> int:
    """Count the groups to add to `fresh` ones so that `share` of the update's groups are replayed, as far as they are
    available."""
    return available if share >= 1 else min(available, round(fresh * share / (1 - share)))


def choose(
    candidates: Iterable[Candidate], fresh: int, *, share: float, decay: float, limit: int, seed: int
) -> list[Candidate]:
    """Choose the groups to learn from again, highest priority first; those of equal priority in an order drawn with
    `seed`.

    Args:
        fresh: groups of this iteration.
        limit: updates that may learn from a group, its own included.
    """
    usable = sorted((one for one in candidates if one.uses < limit), key=lambda one: one.group_id)
    # sorted by name before the draw: the order in which tables were read must not decide
    order = np.random.default_rng(seed).permutation(len(usable))
    by_priority = sorted((usable[i] for i in order), key=lambda one: -priority(one, decay))
    return by_priority[: replay_count(fresh, share, len(usable))]


@dataclass(frozen=True, slots=True)
class Correction:
    """A meta-task row of an earlier iteration whose retry was learned."""

    row_id: str
    group_id: str
    task_id: str
    iteration: int


def corrections(
    rows: Iterable[Mapping[str, Any]], guided_by: Mapping[str, str], task_of: Mapping[str, str]
) -> list[Correction]:
    """Find what won among training rows: the retries that are learned, and the reports that guided them.

    Args:
        rows: their columns row_id, group_id, iteration, role and source_id.
        guided_by: retry to the reflection that guided it.
        task_of: group to the name of its task.
    """
    meta_rows = [row for row in rows if row["role"] in META_TASKS]
    guide_ids = {guided_by.get(row["source_id"]) for row in meta_rows if row["role"] == "retry"}
    return [
        Correction(row["row_id"], row["group_id"], task_of.get(row["group_id"], row["group_id"]), row["iteration"])
        for row in meta_rows
        if row["role"] == "retry" or row["source_id"] in guide_ids
    ]


def remember(memory: Iterable[Correction], fresh: int, share: float, seed: int) -> list[Correction]:
    """Draw what joins `fresh` meta-task rows, at most one correction per task, so that `share` of all are from memory.

    All are drawn in an order of `seed`, as groups of equal priority are, and the first of each task stays.
    """
    row_of = {one.row_id: one for one in memory}
    order = choose((Candidate(name, 0, 0) for name in row_of), 0, share=1.0, decay=1.0, limit=1, seed=seed)
    of_task: dict[str, Correction] = {}
    for one in order:
        of_task.setdefault(row_of[one.group_id].task_id, row_of[one.group_id])
    return list(of_task.values())[: replay_count(fresh, share, len(of_task))]


def copy_for_replay(rows: Sequence[TrainingRow], iteration: int) -> list[TrainingRow]:
    """Copy rows of an earlier iteration as rows of this one: same tokens, weights and advantage, the old behaviour
    policy."""
    return [
        replace(row, row_id=f"iteration={iteration}/replay/{row.row_id}", iteration=iteration, role="replay")
        for row in rows
    ]
