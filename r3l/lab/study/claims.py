"""The claims of the paper, and the kept results that answer each of them, per seed."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from r3l.config.section import Section
from r3l.errors import ConfigError
from r3l.lab.study.compare import Curve, area, binomial_variance, final, mean, plateau
from r3l.lab.study.results import sum_spending
from r3l.lab.study.verdicts import Gap, gap_over_policies

CURVE: dict[str, Callable[[Curve], float]] = {"area": area, "plateau": plateau, "final": final}


class Claim(Section):
    """One claim, and the results that answer it: an arm against another, or an arm's last third of iterations against
    its first."""

    claim: str
    paper: str = Field(description="what the paper reports")
    experiment: str = Field("", description="stem of a file in data/results; empty: not testable here")
    also: list[str] = Field(
        default_factory=list, description="further results that it is held against, each in a row of its own"
    )
    also_at: dict[str, list[float]] = Field(
        default_factory=dict, description="results to further learning rates, each in a row of its own"
    )
    arm: str = ""
    against: str = Field("", description="another arm; empty: the arm's own beginning")
    measure: str = Field(
        "area",
        description="area, plateau, final, at_equal_turns, at_equal_tokens, area_by_turns, area_by_tokens, "
        "or a metric of the iterations",
    )
    direction: Literal["higher", "lower", "same"] = "higher"
    question: str = Field(
        "",
        description="beginning of a question's title: arm and against are then rows of its answer, one a seed, and the "
        "measure is `won`, a share with its standard error",
    )
    rate: float | None = Field(None, description="learning rate; empty: the first")
    seeds: list[int] = Field(default_factory=list, description="only these seeds; empty: all")
    note: str = Field("", description="why it is not testable here, or what to think of")


Results = dict[str, Any]


class Claims(Section):
    preface: str = Field(description="Markdown: the sentences to quote, and how the page is made")
    details: str = Field("", description="Markdown: what the sentences leave out, under the count of verdicts")
    claims: list[Claim]


def load_claims(path: Path) -> Claims:
    """Raise `ConfigError` where the file says something that can't be."""
    try:
        return Claims.model_validate(tomllib.loads(path.read_text()))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(f"claims {path}: {error}") from error


def differences(results: Results, claim: Claim) -> dict[int, tuple[float, float]]:
    """Pair the arm's value with what it is held against, for each seed that has both."""
    if claim.question:
        return {seed: (ours["won"], theirs["won"]) for seed, (ours, theirs) in shares(results, claim).items()}
    if claim.measure in BY_COST:
        return at_equal_cost(results, claim)
    mine = values(results, claim, claim.arm)
    if not claim.against:
        return {seed: (last_third(rows), first_third(rows)) for seed, rows in mine.items()}
    theirs = values(results, claim, claim.against)
    return {seed: (mean(mine[seed]), mean(theirs[seed])) for seed in sorted(mine.keys() & theirs.keys())}


def at_equal_cost(results: Results, claim: Claim) -> dict[int, tuple[float, float]]:
    """Compare, by seed, the success of both arms when each had sampled what the thriftier one sampled in all, or its
    mean until then; straight lines between evaluations."""
    cost, unit = BY_COST[claim.measure]
    mine, theirs = (
        {seed: by_cost(results, run, cost) for seed, run in runs(results, claim, arm).items()}
        for arm in (claim.arm, claim.against)
    )
    pairs = {}
    for seed in sorted(mine.keys() & theirs.keys()):
        least = min(mine[seed][0][-1], theirs[seed][0][-1])
        pairs[seed] = (unit(least, *mine[seed]), unit(least, *theirs[seed]))
    return pairs


def rate_at(cost: float, costs: list[float], rates: list[float]) -> float:
    return float(np.interp(cost, costs, rates))


def mean_until(cost: float, costs: list[float], rates: list[float]) -> float:
    """Compute the mean height of the line through (costs, rates) between no cost and `cost`."""
    return area({corner: rate_at(corner, costs, rates) for corner in [*(one for one in costs if one < cost), cost]})


BY_COST = {
    "at_equal_turns": ("turns", rate_at),
    "at_equal_tokens": ("tokens", rate_at),
    "area_by_turns": ("turns", mean_until),
    "area_by_tokens": ("tokens", mean_until),
}


def by_cost(results: Results, run: str, cost: str) -> tuple[list[float], list[float]]:
    """Pair cost so far and success rate of each evaluation of a run."""
    spending, curve = sum_spending(results["metrics"][run]), curve_of(results, run)
    return [float(getattr(spending[at], cost)) for at in sorted(curve)], [curve[at] for at in sorted(curve)]


def runs(results: Results, claim: Claim, arm: str) -> dict[int, str]:
    """Find the run of each seed, at the claim's learning rate."""
    rate = rate_of(results, claim)
    return {
        cell["seed"]: cell["run"]
        for cell in results["cells"]
        if cell["arm"] == arm and cell["rate"] == rate and (not claim.seeds or cell["seed"] in claim.seeds)
    }


def rate_of(results: Results, claim: Claim) -> float | None:
    """Choose the claim's learning rate, else the experiment's first; None: the model's."""
    return claim.rate if claim.rate is not None else next((cell["rate"] for cell in results["cells"]), None)


def curve_of(results: Results, run: str) -> dict[int, float]:
    return {int(at): value for at, value in results["curves"][run].items()}


def values(results: Results, claim: Claim, arm: str) -> dict[int, list[float]]:
    """Read, by seed, one number for a measure of the curve, else the metric in every iteration that has it."""
    by_seed: dict[int, list[float]] = {}
    for seed, run in runs(results, claim, arm).items():
        if claim.measure in CURVE:
            figures = [CURVE[claim.measure](curve_of(results, run))]
        else:
            figures = [float(row[claim.measure]) for row in results["metrics"][run] if row[claim.measure] is not None]
        if figures:
            by_seed[seed] = figures
    return by_seed


def first_third(rows: list[float]) -> float:
    return mean(rows[: max(1, len(rows) // 3)])


def last_third(rows: list[float]) -> float:
    return mean(rows[-max(1, len(rows) // 3) :])


def starts(results: Results) -> dict[int, str]:
    """Name the starting policy of each seed: the size's policies in turn; the model's own for all seeds where it has
    none."""
    of = results["experiment"]["sizes"][results["size"]]
    policies = of["policies"] or [of["model"]]
    return {cell["seed"]: policies[cell["seed"] % len(policies)] for cell in results["cells"]}


def noise(results: Results, claim: Claim, seed: int) -> float:
    """Estimate the variance of a seed's difference that comes from the test episodes, or from the number of attempts
    that two shares are of; 0 where it is no success rate."""
    if claim.question:
        return float(sum(one["error"] ** 2 for one in shares(results, claim)[seed]))
    measure = CURVE.get(LIKE.get(claim.measure, claim.measure))
    if measure is None or not claim.against:
        return 0.0
    both = [runs(results, claim, arm)[seed] for arm in (claim.arm, claim.against)]
    return sum(binomial_variance(measure, curve_of(results, run), results["test_episodes"]) for run in both)


LIKE = {"at_equal_turns": "final", "at_equal_tokens": "final", "area_by_turns": "area", "area_by_tokens": "area"}
"""Measures by cost, and those whose test episodes they share."""


def gap(results: Results, claim: Claim) -> Gap | None:
    """Average the claim's difference over starting policies; None where it was not run."""
    pairs = differences(results, claim)
    if not pairs:
        return None
    gaps = {seed: ours - theirs for seed, (ours, theirs) in pairs.items()}
    return gap_over_policies(gaps, starts(results), {seed: noise(results, claim, seed) for seed in gaps})


def shares(results: Results, claim: Claim) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
    """Find, by seed, the two rows of an answer that the claim names by their first column."""
    rows = answer(results, claim.question, rate_of(results, claim))
    row_of = {(next(iter(row.values())), row["seed"]): row for row in rows}
    return {
        seed: (row, row_of[claim.against, seed])
        for (name, seed), row in row_of.items()
        if name == claim.arm and (claim.against, seed) in row_of
    }


def answer(results: Results, begins: str, rate: float | None) -> list[dict[str, Any]]:
    """Find the rows of the question whose title begins so; none where it was not asked at that learning rate."""
    return next(
        (one["rows"] for one in results["answers"] if one["title"].startswith(begins) and one["rate"] == rate), []
    )
