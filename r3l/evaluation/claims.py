"""`data/RESULTS.md`: each claim of the paper against what the kept results say. Verdicts are computed, seed by seed."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from r3l.config.section import Section
from r3l.errors import ConfigError
from r3l.evaluation.compare import Curve, area, mean, plateau, standard_error
from r3l.evaluation.results import spent

CURVE: dict[str, Callable[[Curve], float]] = {
    "area": area, "plateau": plateau, "final": lambda curve: curve[max(curve)], "best": lambda curve: max(curve.values())}


class Claim(Section):
    """One claim, and what of the results answers it: an arm against another, or an arm's last third of iterations against its first."""

    claim: str
    paper: str = Field(description="what the paper reports")
    experiment: str = Field("", description="stem of a file in data/results; empty: not testable here")
    also: list[str] = Field(default_factory=list, description="further results that it is held against, each in a row of its own")
    also_at: dict[str, list[float]] = Field(default_factory=dict, description="results to further learning rates, each in a row of its own")
    arm: str = ""
    against: str = Field("", description="another arm; empty: the arm's own beginning")
    measure: str = Field("area", description="area, plateau, final, best, at_equal_turns, at_equal_tokens, area_by_turns, area_by_tokens, "
                                         "or a metric of the iterations")
    direction: Literal["higher", "lower", "same"] = "higher"
    question: str = Field("", description="beginning of a question's title: arm and against are then rows of its answer (won, error, n)")
    rate: float | None = Field(None, description="learning rate; empty: the first")
    note: str = Field("", description="why it is not testable here, or what to think of")


Results = dict[str, Any]


class Claims(Section):
    preface: str
    claims: list[Claim]


def load_claims(path: Path) -> Claims:
    """Raises `ConfigError` where the file says something that can't be."""
    try:
        return Claims.model_validate(tomllib.loads(path.read_text()))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(f"claims {path}: {error}") from error


def differences(results: Results, claim: Claim) -> dict[int, tuple[float, float]]:
    """(the arm's value, what it is held against) for each seed that has both."""
    if claim.measure in BY_COST:
        return at_equal_cost(results, claim)
    mine = values(results, claim, claim.arm)
    if not claim.against:
        return {seed: (last_third(rows), first_third(rows)) for seed, rows in mine.items()}
    theirs = values(results, claim, claim.against)
    return {seed: (mean(mine[seed]), mean(theirs[seed])) for seed in sorted(mine.keys() & theirs.keys())}


def at_equal_cost(results: Results, claim: Claim) -> dict[int, tuple[float, float]]:
    """By seed, the success of both arms when each had sampled what the thriftier one sampled in all, or its mean until then; straight
    lines between evaluations."""
    cost, told = BY_COST[claim.measure]
    mine, theirs = ({seed: by_cost(results, run, cost) for seed, run in runs(results, claim, arm).items()}
                    for arm in (claim.arm, claim.against))
    found = {}
    for seed in sorted(mine.keys() & theirs.keys()):
        least = min(mine[seed][0][-1], theirs[seed][0][-1])
        found[seed] = (told(least, *mine[seed]), told(least, *theirs[seed]))
    return found


def rate_at(cost: float, costs: list[float], rates: list[float]) -> float:
    return float(np.interp(cost, costs, rates))


def mean_until(cost: float, costs: list[float], rates: list[float]) -> float:
    """The mean height of the line through (costs, rates) between no cost and `cost`."""
    return area({corner: rate_at(corner, costs, rates) for corner in [*(one for one in costs if one < cost), cost]})


BY_COST = {"at_equal_turns": ("turns", rate_at), "at_equal_tokens": ("tokens", rate_at),
           "area_by_turns": ("turns", mean_until), "area_by_tokens": ("tokens", mean_until)}


def by_cost(results: Results, run: str, cost: str) -> tuple[list[float], list[float]]:
    """(cost so far, success rate) of each evaluation of a run."""
    used, curve = spent(results["metrics"][run]), curve_of(results, run)
    return [float(getattr(used[at], cost)) for at in sorted(curve)], [curve[at] for at in sorted(curve)]


def runs(results: Results, claim: Claim, arm: str) -> dict[int, str]:
    """The run of each seed, at the claim's learning rate."""
    rate = rate_of(results, claim)
    return {cell["seed"]: cell["run"] for cell in results["cells"] if cell["arm"] == arm and cell["rate"] == rate}


def rate_of(results: Results, claim: Claim) -> float | None:
    """The claim's, else the experiment's first; None: the model's."""
    return claim.rate if claim.rate is not None else next((cell["rate"] for cell in results["cells"]), None)


def curve_of(results: Results, run: str) -> dict[int, float]:
    return {int(at): value for at, value in results["curves"][run].items()}


def values(results: Results, claim: Claim, arm: str) -> dict[int, list[float]]:
    """By seed: one number for a measure of the curve, else the metric in every iteration that has it."""
    found: dict[int, list[float]] = {}
    for seed, run in runs(results, claim, arm).items():
        if claim.measure in CURVE:
            known = [CURVE[claim.measure](curve_of(results, run))]
        else:
            known = [float(row[claim.measure]) for row in results["metrics"][run] if row[claim.measure] is not None]
        if known:
            found[seed] = known
    return found


def first_third(rows: list[float]) -> float:
    return mean(rows[: max(1, len(rows) // 3)])


def last_third(rows: list[float]) -> float:
    return mean(rows[-max(1, len(rows) // 3):])


def answered(results: Results, claim: Claim) -> tuple[str, str]:
    """(what was measured, verdict) of a claim on two rows of an answer: shares `won` with their standard errors."""
    rate = rate_of(results, claim)
    rows: list[dict[str, Any]] = next((one["rows"] for one in results["answers"]
                                      if one["title"].startswith(claim.question) and one["rate"] == rate), [])
    named = {next(iter(row.values())): row for row in rows}
    if not {claim.arm, claim.against} <= named.keys():
        return "", "not run"
    mine, theirs = named[claim.arm], named[claim.against]
    gap, error = mine["won"] - theirs["won"], math.hypot(mine["error"], theirs["error"])
    told = "; ".join(f"{name} {row['won']:.3f} (n = {row['n']})" for name, row in ((claim.arm, mine), (claim.against, theirs)))
    as_claimed = gap * (-1 if claim.direction == "lower" else 1) > 0
    judged = "**holds**" if as_claimed else "**does not hold** (the other way round)"
    return (f"{told}; difference {gap:+.3f} ± {error:.3f}",
            judged if abs(gap) > 2 * error else "undecided: within the noise")


def verdict(pairs: dict[int, tuple[float, float]], direction: str) -> str:
    """holds: every seed agrees and the mean difference is above two of its standard errors; does not hold: the other way round."""
    gaps = [(a - b) * (-1 if direction == "lower" else 1) for a, b in pairs.values()]
    if not gaps:
        return "not run"
    if len(gaps) < 3 and (len(gaps) == 1 or direction != "same"):
        told = "as claimed" if min(gaps) > 0 else "seeds disagree" if max(gaps) > 0 else "not as claimed"
        return f"{('one seed', 'two seeds')[len(gaps) - 1]} only: {told}"
    clear = abs(mean(gaps)) > 2 * standard_error(gaps) and (min(gaps) > 0 or max(gaps) < 0)
    if direction == "same":
        return "does not hold" if clear else "no clear difference"
    if not clear:
        return "undecided: within the noise"
    return "**holds**" if mean(gaps) > 0 else "**does not hold** (the other way round)"


def measured(claim: Claim, pairs: dict[int, tuple[float, float]]) -> str:
    if not pairs:
        return ""
    mine, theirs = [a for a, _ in pairs.values()], [b for _, b in pairs.values()]
    gaps = [a - b for a, b in pairs.values()]
    held = claim.against or "its first third"
    digits = ".3f" if mean(mine) < 100 else ",.0f"
    error = f" ± {standard_error(gaps):{digits}}" if len(gaps) > 1 else ""
    return (f"{claim.measure}: {claim.arm} {mean(mine):{digits}}, {held} {mean(theirs):{digits}}; difference {mean(gaps):+{digits}}{error} "
            f"over {len(gaps)} seed{'s' if len(gaps) > 1 else ''}")


def held_against(results: Results, claim: Claim) -> tuple[str, str]:
    """(what was measured, verdict)."""
    if claim.question:
        return answered(results, claim)
    pairs = differences(results, claim)
    return measured(claim, pairs), verdict(pairs, claim.direction)


def results_page(told_of: Claims, folder: Path) -> str:
    """The page as Markdown: a row for every claim and every place where it is held against something."""
    kept = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    lines = [told_of.preface.strip("\n"), "",
             "| claim of the paper | the paper's figures | experiment, learning rate | measured here | verdict |", "|---|---|---|---|---|"]
    for claim in told_of.claims:
        first, *others = [row(one, kept) for one in places(claim)]
        lines += [f"| {claim.claim} | {claim.paper} | {first}", *(f"| | | {other}" for other in others)]
    return "\n".join(lines) + "\n"


def places(claim: Claim) -> list[Claim]:
    """The claim itself, then the same held against its further results and learning rates."""
    further: list[dict[str, Any]] = [{"experiment": other} for other in claim.also]
    further += [{"experiment": other, "rate": rate} for other, rates in claim.also_at.items() for rate in rates]
    return [claim, *(claim.model_copy(update={"note": "", **one}) for one in further)]


def row(claim: Claim, kept: dict[str, Results]) -> str:
    """What follows the claim: where, what was measured, the verdict."""
    if not claim.experiment:
        return f"| {claim.note} | not testable here |"
    if claim.experiment not in kept:
        return f"{claim.experiment} | {claim.note} | not run |"
    results = kept[claim.experiment]
    rate = rate_of(results, claim)
    where = f"[{claim.experiment}](results/{claim.experiment}.md){'' if rate is None else f', {rate:g}'}"
    found, judged = held_against(results, claim)
    return f"{where} | {'. '.join(filter(None, [found, claim.note]))} | {judged} |"
