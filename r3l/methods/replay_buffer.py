"""The experience replay buffer, on where the behaviour policy is renewed less than every update (S > 1).

Which groups of earlier iterations an update learns from again: the most recent ones that are not used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from r3l.records import TrainingRow


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group of an earlier iteration. `age`: iterations since it was sampled; `uses`: updates that have learned from
    it."""

    group_id: str
    age: int
    uses: int


def priority(candidate: Candidate, decay: float) -> float:
    """Return decay ** -age: 1 for a fresh group, halved with each iteration at decay 2."""
    return float(decay**-candidate.age)


def replay_count(fresh: int, share: float, available: int) -> int:
    """Return groups to add to `fresh` ones so that `share` of the update's groups are replayed, as far as they are
    available."""
    return available if share >= 1 else min(available, round(fresh * share / (1 - share)))


def choose(
    candidates: Iterable[Candidate], fresh: int, *, share: float, decay: float, limit: int, seed: int
) -> list[Candidate]:
    """Return the groups to learn from again, highest priority first; those of equal priority in an order drawn with
    `seed`.

    Args:
        fresh: groups of this iteration.
        limit: updates that may learn from a group, its own included.
    """
    usable = sorted((one for one in candidates if one.uses < limit), key=lambda one: one.group_id)
    order = np.random.default_rng(seed).permutation(len(usable))
    ranked = sorted((usable[i] for i in order), key=lambda one: -priority(one, decay))
    return ranked[: replay_count(fresh, share, len(usable))]


def replayed(rows: Sequence[TrainingRow], iteration: int) -> list[TrainingRow]:
    """Return rows of an earlier iteration as rows of this one: same tokens, weights and advantage, the old behaviour
    policy."""
    return [
        replace(row, row_id=f"iteration={iteration}/replay/{row.row_id}", iteration=iteration, role="replay")
        for row in rows
    ]
