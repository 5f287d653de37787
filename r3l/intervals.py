"""Intervals of measured shares."""

import math
from collections import defaultdict
from collections.abc import Sequence

Z95 = 1.959963984540054


def wilson(solved: float, episodes: float) -> tuple[float, float]:
    """Compute the 95 % Wilson score interval of a success rate; (0, 1) where there is no episode."""
    if not episodes:
        return 0.0, 1.0
    rate, z2 = solved / episodes, Z95**2
    middle = (rate + z2 / (2 * episodes)) / (1 + z2 / episodes)
    half = Z95 / (1 + z2 / episodes) * math.sqrt(rate * (1 - rate) / episodes + z2 / (4 * episodes**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def difference(now: tuple[float, float], before: tuple[float, float]) -> tuple[float, float]:
    """Compute the 95 % interval of the difference of two success rates (Newcombe's, of their Wilson intervals), each
    given as (rate, episodes)."""
    (rate, episodes), (rate_before, episodes_before) = now, before
    low, high = wilson(rate * episodes, episodes)
    low_before, high_before = wilson(rate_before * episodes_before, episodes_before)
    change = rate - rate_before
    return (
        change - math.hypot(rate - low, high_before - rate_before),
        change + math.hypot(high - rate, rate_before - low_before),
    )


def independent_episodes(successes: Sequence[bool], clusters: Sequence[str]) -> float:
    """Count how many independent episodes tell as much as these: their number divided by the design effect, which is
    the variance of the rate over clusters relative to that over episodes, and never below 1. Where all episodes or none
    succeeded the variance says nothing: then it is the number of clusters."""
    episodes, kinds = len(successes), len(set(clusters))
    if kinds == episodes or not 0 < sum(successes) < episodes:
        return kinds
    if kinds == 1:
        return 1.0
    alone = variance_of_mean(successes, [str(place) for place in range(episodes)])
    return episodes / max(1.0, variance_of_mean(successes, clusters) / alone)


def variance_of_mean(values: Sequence[float], clusters: Sequence[str]) -> float:
    """Compute the cluster-robust variance of a mean: with C clusters of n values in all, C / (C - 1) times the sum over
    clusters of (sum of deviations from the mean) squared, divided by n squared. NaN for a single cluster."""
    mean = sum(values) / len(values) if values else math.nan
    sums: dict[str, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value - mean
    if len(sums) < 2:
        return math.nan
    return len(sums) / (len(sums) - 1) * sum(one**2 for one in sums.values()) / len(values) ** 2
