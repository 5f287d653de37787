"""Scores of evaluation episodes: k of n with an interval, never a bare percentage."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NotRequired, Self, TypedDict

from r3l.config import Config
from r3l.errors import ConfigError
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


HELD_OUT = "it is held-out success that is looked at; give --evaluate-every N (evaluation.every)"
FORM = re.compile(r"\s*(success|low)\s*>=\s*(0?\.\d+|[01](?:\.0*)?)\s*")


RETURN = "return"  # the branch on which a training goes on from its best policy


class Goal(NamedTuple):
    """`figure`: success, or low, the lower end of its 95 % interval, which chance does not reach so easily."""

    figure: str
    bound: float

    @classmethod
    def of(cls, text: str, config: Config) -> Self | None:
        """Read a goal; None where there is none. Raise `ConfigError` where it can't be read, or is never looked at."""
        if not text:
            return None
        if not (match := FORM.fullmatch(text)):
            raise ConfigError(f"until={text!r:.80}: expected success>=SHARE or low>=SHARE, such as success>=0.6")
        if not config.evaluation.every:
            raise ConfigError(f"until={text}: {HELD_OUT}")
        return cls(match[1], float(match[2]))

    def is_reached(self, scores: Scores) -> bool:
        return (scores["low"] if self.figure == "low" else scores["rate"]) >= self.bound


def check_return(evaluations: int, config: Config) -> None:
    """Raise `ConfigError` where a return to the best policy is asked for that could never come."""
    if evaluations < 0:
        raise ConfigError(f"return_after={evaluations}: expected a number of evaluations, or 0 for never")
    if evaluations and not config.evaluation.every:
        raise ConfigError(f"return_after={evaluations}: {HELD_OUT}")
    if evaluations and config.branch not in ("", RETURN):
        raise ConfigError(f"return_after={evaluations}: branch {config.branch} has no branches of its own")
