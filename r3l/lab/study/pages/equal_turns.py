"""All arms of an experiment at equal turns, each against one of them, by the points of the dial: the smallest number of
turns that all arms of a starting policy have sampled by their last evaluation.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from r3l.lab.study.claims import Claim, Results, by_cost, mean_until, noise, rate_at, runs, starts
from r3l.lab.study.compare import mean
from r3l.lab.study.phase_map import dial, interval_text
from r3l.lab.study.verdicts import Gap, gap_over_policies

COSTS = ("turns", "tokens", "seconds")


class AtTurns(NamedTuple):
    """An arm: its success, and its mean success until then, by seed; None for a gap: it is the rival, or has none.
    `cost`: turns, tokens and seconds of a whole run, in the mean of the seeds."""

    arm: str
    success: dict[int, float]
    area: dict[int, float]
    over: Gap | None
    cost: dict[str, float]


def arms_at_turns(
    results: Results, rival: str, rate: float, seeds: Sequence[int]
) -> tuple[dict[int, float], list[AtTurns]]:
    """Find the number of turns of each seed that the rival has a run of, and the arms in order of their area."""
    arms = dict.fromkeys(cell["arm"] for cell in results["cells"] if cell["rate"] == rate)
    of_arm = {arm: runs(results, Claim(claim="", paper="", arm=arm, rate=rate, seeds=list(seeds)), arm) for arm in arms}
    curves_of_seed = {
        seed: {arm: by_cost(results, of_arm[arm][seed], "turns") for arm in arms if seed in of_arm[arm]}
        for seed in of_arm.get(rival, {})
    }
    least = {seed: min(turns[-1] for turns, _ in curves.values()) for seed, curves in curves_of_seed.items()}
    rows = []
    for arm in arms:
        own = {seed: curves[arm] for seed, curves in curves_of_seed.items() if arm in curves}
        success = {seed: rate_at(least[seed], *curve) for seed, curve in own.items()}
        gaps = {seed: height - rate_at(least[seed], *curves_of_seed[seed][rival]) for seed, height in success.items()}
        claim = Claim(claim="", paper="", arm=arm, against=rival, measure="at_equal_turns", rate=rate)
        over = (
            gap_over_policies(gaps, starts(results), {seed: noise(results, claim, seed) for seed in gaps})
            if gaps and arm != rival
            else None
        )
        if success:
            area = {seed: mean_until(least[seed], *curve) for seed, curve in own.items()}
            cost = {name: mean([total(results, of_arm[arm][seed], name) for seed in own]) for name in COSTS}
            rows.append(AtTurns(arm, success, area, over, cost))
    return least, sorted(rows, key=lambda one: -mean(list(one.area.values())))


def total(results: Results, run: str, cost: str) -> float:
    return float(sum(row[cost] or 0 for row in results["metrics"][run]))


def holm(ps: Sequence[float]) -> list[float]:
    """Compute Holm's adjusted p of each (Holm 1979); NaN stays NaN and counts as no test."""
    ranks = sorted((p, at) for at, p in enumerate(ps) if not math.isnan(p))
    adjusted_ps, largest = list(ps), 0.0
    for rank, (p, at) in enumerate(ranks):
        adjusted_ps[at] = largest = max(largest, min(1.0, p * (len(ranks) - rank)))
    return adjusted_ps


def equal_turns_section(results: Results) -> list[str]:
    """Write the tables, one a learning rate and point of the dial; nothing where the experiment names no rival, or has
    no run of it."""
    rival, lines = results["experiment"].get("against", ""), []
    for rate in dict.fromkeys(cell["rate"] for cell in results["cells"]):
        for forgets, seeds in dial(results).items():
            least, rows = arms_at_turns(results, rival, rate, seeds)
            if not rows:
                continue
            ps = holm([one.over.p if one.over else math.nan for one in rows])
            turns = mean(list(least.values()))
            lines += [
                f"### F = {forgets:g}, learning rate {rate:g}, at {turns:,.0f} turns in the mean of the policies",
                "",
                f"| arm | success | mean until then | less {rival} | p (Holm) | policies | "
                "turns, tokens and seconds of a run |",
                "|---|---|---|---|---|---|---|",
                *(line(one, p) for one, p in zip(rows, ps, strict=True)),
                "",
            ]
    note = "Seconds are by the clock; other runs shared the machine, so they compare methods only roughly."
    return ["## All arms at equal turns", "", note, "", *lines] if lines else []


def line(one: AtTurns, p: float) -> str:
    over = interval_text(one.over) if one.over else ""
    p_text = "" if math.isnan(p) else f"{p:.3f}"
    success, until = mean(list(one.success.values())), mean(list(one.area.values()))
    cost = ", ".join(f"{one.cost[name]:.0f}" for name in COSTS)
    return f"| {one.arm} | {success:.3f} | {until:.3f} | {over} | {p_text} | {len(one.success)} | {cost} |"
