"""How well credit agrees with the truth, per policy and over policies, and what pivots have to do with it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from r3l.credit.advantages import Floats
from r3l.lab.exam.records import Exam, Group, different_turns
from r3l.lab.exam.regression import NAME, regressions
from r3l.lab.exam.truth import even, odd, true_advantages
from r3l.lab.exam.ways import Way
from r3l.records import Kind

# Two-sided 95 % quantiles of Student's t, by degrees of freedom; beyond them the normal one is near enough
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131)


@dataclass(frozen=True, slots=True)
class Score:
    """Agreement of one way with the truth on one policy's turns.

    Attributes:
        rank: Spearman's correlation; 0 where the way gives all turns the same.
        wrong, silent: shares of the absolute truth that lie on turns with the opposite sign, and on turns without
            credit.
        cosine: between the masses that the way and the truth put on turns; 0 where one puts none.
        gradient: between the gradients of the two updates of a group, on average over groups whose truth has one; NaN
            where none were made.
    """

    rank: float
    wrong: float
    silent: float
    cosine: float
    gradient: float
    turns: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over policies with its 95 % interval; infinite where there is one policy."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if math.isinf(self.half) else f" ± {self.half:.3f}")


def interval(values: Sequence[float]) -> Interval:
    """Compute the mean of independent values, and Student's interval of it."""
    if len(values) < 2:
        return Interval(fmean(values) if values else math.nan, math.inf)
    quantile = T95[len(values) - 2] if len(values) - 2 < len(T95) else 2.0
    return Interval(fmean(values), quantile * stdev(values) / math.sqrt(len(values)))


def score(way: Way, groups: Iterable[Group]) -> Score:
    """Score a way on all turns whose truth was measured."""
    both = [(group, way(group), true_advantages(group)) for group in groups]
    pairs = [pair for _, given, true in both for pair in zip(given, true, strict=True)]
    credit, truth = (np.concatenate([np.zeros(0), *(pair[side] for pair in pairs)]) for side in (0, 1))
    each = [masses(group, given, true) for group, given, true in both]
    mass = np.concatenate([np.zeros((0, 2)), *each])
    norms = np.linalg.norm(mass, axis=0)
    measured = ~np.isnan(truth)
    credit, truth = credit[measured], truth[measured]
    whole = float(np.abs(truth).sum())
    opposite, none = np.sign(credit) * np.sign(truth) < 0, credit == 0
    return Score(
        rank=correlation(ranks(credit), ranks(truth)),
        wrong=float(np.abs(truth)[opposite].sum()) / whole if whole else 0.0,
        silent=float(np.abs(truth)[none].sum()) / whole if whole else 0.0,
        cosine=float(mass[:, 0] @ mass[:, 1] / norms.prod()) if norms.all() else 0.0,
        gradient=mean_of_known(gradient_cosine(group, own) for (group, _, _), own in zip(both, each, strict=True)),
        turns=len(truth),
    )


def masses(group: Group, credit: Sequence[Floats], truth: Sequence[Floats]) -> Floats:
    """Compute the mass of (credit, truth) on each of the D different turns, shape [D, 2]: advantage / |tau|, summed
    over the tokens of its reply and over all members that took this turn, as an update adds up what it does to the same
    tokens. It is the update's gradient, were those of different turns orthogonal and equally long."""
    places = different_turns(group.turns, group.states)
    mass = np.zeros((1 + max((place for own in places for place in own), default=-1), 2))
    for g, member in enumerate(group.members):
        for k, turn in enumerate(group.turns[g]):
            if not np.isnan(truth[g][k]):
                share = len(turn.response_ids) / max(member.response_tokens, 1)
                mass[places[g][k]] += share * np.array([credit[g][k], truth[g][k]])
    return mass


def gradient_cosine(group: Group, mass: Floats) -> float:
    """Compute the cosine of the gradients that the masses [D, 2] of a way and of the truth make; 0 where the way makes
    none, NaN where the truth makes none or no gradient was stored."""
    if len(group.products) != len(mass):
        return math.nan
    tokens = np.ones(len(mass))
    for own, places in zip(group.turns, different_turns(group.turns, group.states), strict=True):
        tokens[places] = [max(len(turn.response_ids), 1) for turn in own]
    # a turn's mass lies evenly on the tokens of its reply, and the gradient of a reply is the sum of theirs
    per_token = mass / tokens[:, None]
    (way, both), (_, true) = per_token.T @ group.products @ per_token
    if true <= 0:
        return math.nan
    return float(both / math.sqrt(way * true)) if way > 0 else 0.0


def ranks(values: Floats) -> Floats:
    """Rank values from 0 on; equal ones share the mean of their places."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    shared: Floats = (np.cumsum(count) - (count + 1) / 2)[place]
    return shared


def correlation(a: Floats, b: Floats) -> float:
    """Compute Pearson's correlation; 0 where one side is constant, since it tells nothing."""
    return float(np.corrcoef(a, b)[0, 1]) if len(a) > 1 and a.std() and b.std() else 0.0


def scores(ways: Mapping[str, Way], exams: Sequence[Exam]) -> dict[str, list[Score]]:
    """Score every way on every policy, and of several policies one that is learned on the others."""
    each = {name: [way] * len(exams) for name, way in ways.items()}
    if learned := regressions(exams):
        each[NAME] = learned
    return {name: [score(way, exam.groups) for way, exam in zip(own, exams, strict=True)] for name, own in each.items()}


@dataclass(frozen=True, slots=True)
class Pivots:
    """What retried bases lost, and where, on one policy: mean true advantages.

    Attributes:
        bases: retried bases whose every turn was measured.
        exact, near: shares of them whose pivot is the turn of the largest fall, or within one of it.
        guess: the share that a turn drawn evenly would hit.
        at_pivot, at_oracle, at_any: the mean true advantage of the pivot's turn, of the oracle's, of all turns.
        at_worst: of the turn that falls most by one half of the continuations, measured by the other.
    """

    bases: int
    exact: float
    near: float
    guess: float
    at_pivot: float
    at_oracle: float
    at_any: float
    at_worst: float


def pivots(groups: Iterable[Group]) -> Pivots | None:
    """Compare the pivots of retried bases with where the truth falls most; None where none was retried."""
    rows = [row for group in groups for row in pivot_rows(group)]
    if not rows:
        return None
    columns = zip(*rows, strict=True)
    return Pivots(len(rows), *(mean_of_known(column) for column in columns))


def mean_of_known(values: Iterable[float]) -> float:
    """Average what is not NaN; NaN where nothing is."""
    known = [one for one in values if not math.isnan(one)]
    return fmean(known) if known else math.nan


def pivot_rows(group: Group) -> Iterable[tuple[float, ...]]:
    """Yield the figures of `Pivots` for each retried base of a group."""
    pivot_of = {str(one.base_id): int(one.pivot_turn or 0) for one in group.members if one.kind == Kind.DISTILLED}
    halves = (true_advantages(group, even), true_advantages(group, odd))
    for place, (base, truth) in enumerate(zip(group.members, true_advantages(group), strict=True)):
        pivot, (first, second) = pivot_of.get(base.trajectory_id), (half[place] for half in halves)
        if pivot is None or np.isnan([truth, first, second]).any():
            continue
        fall = int(np.argmin(truth))
        oracle = group.oracle.get(base.trajectory_id)
        yield (
            float(pivot == fall),
            float(abs(pivot - fall) <= 1),
            1 / len(truth),
            float(truth[pivot]),
            math.nan if oracle is None else float(truth[oracle]),
            float(truth.mean()),
            # chosen by one half and measured by the other: the least of noisy values would look worse than it is
            float((second[np.argmin(first)] + first[np.argmin(second)]) / 2),
        )
