"""Scores of evaluation episodes: k of n with an interval, never a bare percentage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Score:
    """`solved` of `episodes`; `low` and `high` bound the success rate with 95 % confidence (Wilson)."""

    episodes: int
    solved: int
    low: float
    high: float
    reward: float
    standard_error: float

    @property
    def rate(self) -> float:
        return self.solved / self.episodes if self.episodes else math.nan

    def __str__(self) -> str:
        return f"{self.solved}/{self.episodes} = {self.rate:.1%} [{self.low:.1%}, {self.high:.1%}]"


def wilson(solved: int, episodes: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a success rate; (0, 1) where there is no episode."""
    if not episodes:
        return 0.0, 1.0
    rate, z2 = solved / episodes, Z95**2
    middle = (rate + z2 / (2 * episodes)) / (1 + z2 / episodes)
    half = Z95 / (1 + z2 / episodes) * math.sqrt(rate * (1 - rate) / episodes + z2 / (4 * episodes**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def score(results: Sequence[tuple[bool, float]]) -> Score:
    """The score of (success, reward) pairs; a failed episode is (False, 0.0)."""
    episodes, solved = len(results), sum(success for success, _ in results)
    mean = sum(reward for _, reward in results) / episodes if episodes else math.nan
    variance = sum((reward - mean) ** 2 for _, reward in results) / (episodes - 1) if episodes > 1 else math.nan
    return Score(episodes, solved, *wilson(solved, episodes), mean, math.sqrt(variance / episodes) if episodes > 1 else math.nan)


def by_type(results: Iterable[tuple[str, bool, float]]) -> dict[str, Score]:
    """Scores of (task type, success, reward) by task type, in alphabetical order."""
    grouped: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for task_type, success, reward in results:
        grouped[task_type].append((success, reward))
    return {task_type: score(grouped[task_type]) for task_type in sorted(grouped)}
