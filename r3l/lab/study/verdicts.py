"""Verdicts on claims. The starting policy is the unit of replication: seeds of one policy are averaged first."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from r3l.errors import ConfigError
from r3l.lab.study.compare import episodes_error, mean, standard_error
from r3l.system.packages import import_package

LEVEL = 0.05  # of the expected share of wrong verdicts among those that are decided (Benjamini and Hochberg 1995)
Direction = Literal["higher", "lower", "same"]


def statistics() -> Any:
    """Import scipy's statistics. Raise ConfigError, with the command that installs it, where it is not there."""
    return import_package("scipy.stats", "experiments", ConfigError)


@dataclass(frozen=True, slots=True)
class Gap:
    """A mean difference with its standard error and degrees of freedom.

    With one starting policy the error is the test episodes' alone, which says nothing about other policies: p is NaN.
    """

    mean: float
    error: float
    freedom: int
    policies: int
    seeds: int

    @property
    def p(self) -> float:
        """Two-sided, by Student's t."""
        if self.freedom < 1 or math.isnan(self.error):
            return math.nan
        if self.error == 0:
            return 0.0 if self.mean else 1.0
        return float(2 * statistics().t.sf(abs(self.mean) / self.error, self.freedom))

    @property
    def interval(self) -> tuple[float, float]:
        """95 %."""
        if self.freedom < 1:
            return math.nan, math.nan
        half = float(statistics().t.ppf(0.975, self.freedom)) * self.error
        return self.mean - half, self.mean + half


def policies_to_decide(difference: float, gap: Gap, power: float = 0.8) -> int | None:
    """Count the starting policies from which a true gap of this size has this chance of a p of 0.05, if they spread as
    these did; None where a spread is not known, or 1,000 do not suffice.

    By the noncentral t distribution: P(|t| > t_0.975) at n - 1 degrees of freedom and difference sqrt(n) / spread.
    """
    if gap.freedom < 1 or not gap.error > 0:
        return None
    spread, stats = gap.error * math.sqrt(gap.policies), statistics()
    for n in range(2, 1001):
        bound, shift = stats.t.ppf(0.975, n - 1), difference * math.sqrt(n) / spread
        if stats.nct.sf(bound, n - 1, shift) + stats.nct.cdf(-bound, n - 1, shift) >= power:
            return n
    return None


def gap_over_policies(gaps: Mapping[int, float], starts: Mapping[int, str], noise: Mapping[int, float]) -> Gap:
    """Average the gap over starting policies.

    Args:
        gaps: the difference of each seed.
        starts: the starting policy of each seed.
        noise: the variance of each seed's gap that comes from the test episodes; 0 where it is no success rate.

    The standard error is that of the policies' means, and never below the one of the test episodes.
    """
    by_policy: dict[str, list[int]] = defaultdict(list)
    for seed in gaps:
        by_policy[starts[seed]].append(seed)
    means = [mean([gaps[seed] for seed in seeds]) for seeds in by_policy.values()]
    floor = episodes_error([[noise[seed] for seed in seeds] for seeds in by_policy.values()])
    spread = standard_error(means) if len(means) > 1 else 0.0
    return Gap(mean(means), max(spread, floor), len(means) - 1, len(means), len(gaps))


def adjust(ps: Sequence[float]) -> list[float]:
    """Compute Benjamini and Hochberg's q of each p; NaN stays NaN and counts as no claim."""
    tests = [p for p in ps if not math.isnan(p)]
    if not tests:
        return list(ps)
    qs = iter(statistics().false_discovery_control(tests).tolist())
    return [p if math.isnan(p) else next(qs) for p in ps]


def verdict(gap: Gap, q: float, direction: Direction) -> str:
    """Judge a gap: holds, does not hold (the opposite does) or undecided; with one policy, the direction."""
    if math.isnan(q):
        return f"one policy only: {'as claimed' if points_as_claimed(gap, direction) else 'not as claimed'}"
    return decide(gap, q, direction)


def points_as_claimed(gap: Gap, direction: Direction) -> bool:
    """Tell whether the difference points where the claim says."""
    return gap.mean * (-1 if direction == "lower" else 1) > 0


def decide(gap: Gap, q: float, direction: Direction) -> str:
    """Judge a gap where q is known."""
    clear = q <= LEVEL
    if direction == "same":
        return "does not hold" if clear else "no clear difference"
    if not clear:
        return "undecided"
    return "holds" if points_as_claimed(gap, direction) else "does not hold (the other way round)"
