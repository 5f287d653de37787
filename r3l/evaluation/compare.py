"""The table of an experiment: what every arm reached, over its seeds, with the spread."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Curve = Mapping[int, float]  # iteration (-1: the starting policy) -> success rate


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm over its seeds. `area`: mean of the curve over iterations, by trapezoids, so that equal curves of any length compare."""

    arm: str
    seeds: int
    start: float
    final: float
    final_error: float
    best: float
    area: float
    area_error: float


def summarise_arm(arm: str, curves: Sequence[Curve]) -> Summary:
    """`curves`: one a seed, each with at least one point. Standard errors are NaN for a single seed."""
    finals = [curve[max(curve)] for curve in curves]
    areas = [area(curve) for curve in curves]
    starts = [curve[min(curve)] for curve in curves]
    return Summary(arm, len(curves), mean(starts), mean(finals), standard_error(finals), mean([max(curve.values()) for curve in curves]),
                   mean(areas), standard_error(areas))


def area(curve: Curve) -> float:
    """Area under the curve divided by its length; the value itself for a single point."""
    points = sorted(curve.items())
    if len(points) == 1:
        return points[0][1]
    total = sum((b - a) * (u + v) / 2 for (a, u), (b, v) in itertools.pairwise(points))
    return total / (points[-1][0] - points[0][0])


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def standard_error(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.nan
    middle = mean(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))
