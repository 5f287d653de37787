"""The table of an experiment: the results of every arm over its seeds, with their spread."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Place = TypeVar("Place", int, float)
Curve = Mapping[int, float]  # iteration (-1: the starting policy) -> success rate


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run had spent after some iteration, all iterations before it included."""

    episodes: int
    turns: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm at one learning rate over its seeds.

    area: mean of the curve over iterations, by trapezoids, so that equal curves of any length compare. plateau: mean of
    the evaluations in the last third of the iterations; rise: that less the mean of the third before, so that an arm
    that has levelled off has none. iterations, turns: median over the seeds of what it took until an evaluation reached
    the level; infinite where half of the seeds never did. episodes, tokens: an iteration's, on average. The rest are
    means over starting policies, the seeds of one averaged first, and their standard errors; NaN for one policy.
    """

    arm: str
    rate: float | None
    seeds: int
    policies: int
    start: float
    final: float
    final_error: float
    best: float
    area: float
    area_error: float
    plateau: float
    plateau_error: float
    rise: float
    rise_error: float
    iterations: float
    turns: float
    episodes: float
    tokens: float


def summarise_arm(
    arm: str,
    rate: float | None,
    curves: Sequence[Curve],
    spent: Sequence[Mapping[int, Spent]],
    level: float,
    episodes: int,
    starts: Sequence[str] = (),
) -> Summary:
    """Summarise one arm at one learning rate. `curves` and `spent`: one a seed, each curve with at least one point, and
    what was spent until each point. `episodes`: test episodes of a point. `starts`: the starting policy of each; empty:
    all differ."""
    policies = starts or [str(number) for number in range(len(curves))]

    def error(measure: Callable[[Curve], float]) -> float:
        noise = [binomial_variance(measure, curve, episodes) for curve in curves]
        return error_over(policies, [measure(curve) for curve in curves], noise)

    def over(measure: Callable[[Curve], float]) -> float:
        return mean(by_policy(policies, [measure(curve) for curve in curves]))

    reached_at = [first_at(curve, level) for curve in curves]
    last = [run[max(run)] for run in spent if run]
    lengths = [max(run) + 1 for run in spent if run]
    return Summary(
        arm=arm,
        rate=rate,
        seeds=len(curves),
        policies=len(set(policies)),
        start=over(lambda curve: curve[min(curve)]),
        final=over(final),
        final_error=error(final),
        best=over(lambda curve: max(curve.values())),
        area=over(area),
        area_error=error(area),
        plateau=over(plateau),
        plateau_error=error(plateau),
        rise=over(rise),
        rise_error=error(rise),
        iterations=median([math.inf if at is None else at + 1 for at in reached_at]),
        turns=median(
            [math.inf if at is None else float(run[at].turns) for at, run in zip(reached_at, spent, strict=True)]
        ),
        episodes=mean([one.episodes / length for one, length in zip(last, lengths, strict=True)]),
        tokens=mean([one.tokens / length for one, length in zip(last, lengths, strict=True)]),
    )


def error_over(policies: Sequence[str], values: Sequence[float], noise: Sequence[float]) -> float:
    """Estimate the standard error of the mean over policies, each one's values averaged first, and never below that of
    the test episodes, whose variances are `noise`; NaN for one policy."""
    spread = standard_error(by_policy(policies, values))
    return spread if math.isnan(spread) else max(spread, episodes_error(group_by_policy(policies, noise)))


def by_policy(policies: Sequence[str], values: Sequence[float]) -> list[float]:
    """Average each policy's values."""
    return [mean(own) for own in group_by_policy(policies, values)]


def group_by_policy(policies: Sequence[str], values: Sequence[float]) -> list[list[float]]:
    return [
        [value for other, value in zip(policies, values, strict=True) if other == one]
        for one in dict.fromkeys(policies)
    ]


def episodes_error(noise: Sequence[Sequence[float]]) -> float:
    """Estimate, by the test episodes alone, the standard error of a mean over policies of each one's mean over runs;
    `noise` has the variance of each run of each policy."""
    return math.sqrt(sum(sum(one) / len(one) ** 2 for one in noise)) / len(noise)


def binomial_variance(measure: Callable[[Curve], float], curve: Curve, episodes: int) -> float:
    """Estimate the variance of a measure of the curve by its test episodes alone, `episodes` at each point.

    The measure is linear in the points, so its weights are what it says of unit curves. Rates are drawn a little
    towards 1/2, (wins + 1) / (episodes + 2): ten of ten is no certainty.
    """
    unit = {at: measure({other: float(other == at) for other in curve}) for at in curve}
    rates = {at: (rate * episodes + 1) / (episodes + 2) for at, rate in curve.items()}
    return sum(unit[at] ** 2 * rates[at] * (1 - rates[at]) / episodes for at in curve)


def first_at(curve: Curve, level: float) -> int | None:
    """Find the first evaluated iteration with at least `level`; -1: the starting policy has it."""
    return next((iteration for iteration, rate in sorted(curve.items()) if rate >= level), None)


def final(curve: Curve) -> float:
    return curve[max(curve)]


def area(curve: Mapping[Place, float]) -> float:
    """Compute the area under the curve divided by its length; the value itself for a single point."""
    points = sorted(curve.items())
    if len(points) == 1:
        return points[0][1]
    total = sum((b - a) * (u + v) / 2 for (a, u), (b, v) in itertools.pairwise(points))
    return total / (points[-1][0] - points[0][0])


def plateau(curve: Curve) -> float:
    """Average the evaluations in the last third of the iterations."""
    return mean(within(curve, 2 / 3, 1))


def rise(curve: Curve) -> float:
    """Subtract from the plateau the mean of the evaluations in the third before it; NaN where that has none."""
    return plateau(curve) - mean(within(curve, 1 / 3, 2 / 3))


def within(curve: Curve, after: float, until: float) -> list[float]:
    """List the evaluations in (after, until] of the iterations; the starting policy's is at 0."""
    count = max(curve) + 1
    return [rate for iteration, rate in sorted(curve.items()) if after * count < iteration + 1 <= until * count]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def median(values: Sequence[float]) -> float:
    """Choose the middle value, the upper one of two, so that infinity wins a tie."""
    return sorted(values)[len(values) // 2] if values else math.nan


def standard_error(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.nan
    middle = mean(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))
