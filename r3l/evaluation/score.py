"""Scores of evaluation episodes: k of n with an interval, never a bare percentage."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from r3l.intervals import independent_episodes, variance_of_mean, wilson


@dataclass(frozen=True, slots=True)
class Score:
    """`solved` of `episodes`; `low` and `high` bound the success rate with 95 % confidence (Wilson), repeats of a task
    taken together."""

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


class Scores(TypedDict):
    """What an evaluation came to: its score in all, by task type (`table`, as it is shown), and what was played."""

    run: str
    branch: str
    iteration: int
    benchmark: str
    format: str
    protocol: str
    policy: str
    evaluation: str
    data: str
    split: str
    tasks: int
    of_tasks: int
    repeats: int
    seed: int
    posed: str
    sample: str
    solved: int
    episodes: int
    rate: float
    low: float
    high: float
    table: list[dict[str, str | int]]
    broken: list[str]
    trackers: NotRequired[dict[str, str]]


def score(results: Sequence[tuple[bool, float]], tasks: Sequence[str] = ()) -> Score:
    """Score (success, reward) pairs; a failed episode is (False, 0.0).

    tasks: the task of each episode. Repeats of a task are one cluster: the standard error of the mean reward is that of
        clusters, and the interval that of as many independent episodes as the clusters are worth.
    """
    episodes, successes = len(results), sum(success for success, _ in results)
    clusters = tasks or [str(place) for place in range(episodes)]
    mean = sum(reward for _, reward in results) / episodes if episodes else math.nan
    worth = independent_episodes([success for success, _ in results], clusters)
    low, high = wilson(successes / episodes * worth, worth) if episodes else wilson(0, 0)
    error = math.sqrt(variance_of_mean([reward for _, reward in results], clusters))
    return Score(episodes, successes, low, high, mean, error)


def by_type(results: Iterable[tuple[str, bool, float]], tasks: Sequence[str] = ()) -> dict[str, Score]:
    """Score (task type, success, reward) by task type, in alphabetical order."""
    rows = list(results)
    outcomes_of: dict[str, list[tuple[bool, float, str]]] = defaultdict(list)
    for (task_type, success, reward), task in zip(rows, tasks or map(str, range(len(rows))), strict=True):
        outcomes_of[task_type].append((success, reward, task))
    return {
        task_type: score([(success, reward) for success, reward, _ in outcomes], [task for *_, task in outcomes])
        for task_type, outcomes in sorted(outcomes_of.items())
    }
