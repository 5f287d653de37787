"""The map of the experiment `phase`: the gap of R3L over a rival against what unguided attempts win, and against GRPO's
share of groups with mixed rewards. The prediction and the analysis stand in the experiment's file, from before its
runs.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from r3l.lab.study.claims import Claim, Results, answer, differences, gap, values
from r3l.lab.study.compare import mean
from r3l.lab.study.text import at_rate
from r3l.lab.study.verdicts import Gap

# Where the gap crosses zero, as the experiment's file has it; another one of the dial predicts no crossing.
PREDICTED = {"phase": {"p": (0.05, 0.09), "mixed": (0.35, 0.5)}}
RIVALS = ("GRPO", "GRPO with R3L's turns", "R3L w/o reflect", "Reflect-GRPO from the pivot", "RAFT", "released")
POLICY = re.compile(r"(household|alfworld)-latent-(?P<forgets>[\d.]+)-(?P<number>\d+)$")


class Place(NamedTuple):
    """A point of the dial: what its policies win unguided, GRPO's share of mixed groups, the gap of each policy."""

    forgets: float
    p: float
    mixed: float
    gaps: dict[int, float]  # by the policy's number
    over: Gap  # after the last iteration
    area: Gap  # mean success over training


def on_dial(policies: Sequence[str]) -> bool:
    """Tell whether these starting policies are the dial's."""
    return any(map(place_of, policies))


def dial(results: Results) -> dict[float, list[int]]:
    """List the seeds at each point of the dial, by the names of their starting policies."""
    points: dict[float, list[int]] = defaultdict(list)
    for seed in sorted({cell["seed"] for cell in results["cells"]}):
        if place := policy_of(results, seed):
            points[place[0]].append(seed)
    return dict(sorted(points.items(), reverse=True))


def policy_of(results: Results, seed: int) -> tuple[float, int] | None:
    """Find the place on the dial and the number of a seed's starting policy; None: it is on no dial."""
    policies = results["experiment"]["sizes"][results["size"]]["policies"]
    return place_of(policies[seed % len(policies)]) if policies else None


def place_of(policy: str) -> tuple[float, int] | None:
    """Read the place on the dial and the number of a starting policy off its path; None: it is on no dial."""
    match = POLICY.search(policy)
    return (float(match["forgets"]), int(match["number"])) if match else None


def places(results: Results, rival: str, rate: float | None) -> list[Place]:
    """List the points of the dial at which both arms were run at this learning rate; none where the experiment does not
    ask what the starting policies win."""
    if not (rows := answer(results, "What the starting policy wins", rate)):
        return []
    shares = answer(results, "Share of groups with mixed rewards", rate)
    mixed = {row["seed"]: row["mixed"] for row in shares if row["arm"] == "GRPO"}
    ps = {row["seed"]: row["p"] for row in rows}
    points = []
    for forgets, seeds in dial(results).items():
        claim = Claim(claim="", paper="", arm="R3L", against=rival, measure="final", rate=rate, seeds=seeds)
        pairs, over = differences(results, claim), gap(results, claim)
        if over is None:
            continue
        shares_known = [mixed[seed] for seed in pairs if seed in mixed]
        number_of = {seed: place[1] for seed in pairs if (place := policy_of(results, seed))}
        gaps = {number_of[seed]: ours - theirs for seed, (ours, theirs) in pairs.items()}
        on_the_way = gap(results, claim.model_copy(update={"measure": "area"}))
        points.append(
            Place(forgets, mean([ps[seed] for seed in pairs]), mean(shares_known), gaps, over, on_the_way or over)
        )
    return points


def drawn_places(results: Results) -> dict[float | None, list[Place]]:
    """List the points of the map's picture, R3L less GRPO, by learning rate; a rate with fewer than two points is left
    out: a curve begins there."""
    rates = dict.fromkeys(cell["rate"] for cell in results["cells"])
    places_of_rate = {rate: places(results, "GRPO", rate) for rate in rates}
    return {rate: points for rate, points in places_of_rate.items() if len(points) > 1}


def crossing(points: Sequence[tuple[float, float]]) -> float:
    """Find the smallest x at which the straight lines through (x, gap) come down to zero; NaN where they do not. Points
    at one x are their mean."""
    at: dict[float, list[float]] = defaultdict(list)
    for x, height in points:
        at[x].append(height)
    for (x, high), (after, low) in itertools.pairwise((x, mean(at[x])) for x in sorted(at)):
        if high > 0 >= low:
            return x + (after - x) * high / (high - low)
    return float("nan")


def crossing_interval(placed: Sequence[Place], draws: int = 2000, seed: int = 0) -> tuple[float, float] | None:
    """Estimate a 95 % percentile bootstrap of the crossing in p over the policies that have all points, which are drawn
    alike at each; None below three policies, or where most draws have no crossing."""
    policies = sorted(set.intersection(*(set(one.gaps) for one in placed))) if placed else []
    if len(policies) < 3:
        return None
    gaps = np.array([[one.gaps[policy] for policy in policies] for one in placed])  # [points, policies]

    def of(sample: Any) -> float:
        means = gaps[:, sample].mean(axis=1)
        return crossing([(one.p, float(height)) for one, height in zip(placed, means, strict=True)])

    samples = np.random.default_rng(seed).integers(len(policies), size=(draws, len(policies)))
    crossings = np.array([of(one) for one in samples])
    finite = crossings[~np.isnan(crossings)]
    return (float(np.quantile(finite, 0.025)), float(np.quantile(finite, 0.975))) if 2 * len(finite) > draws else None


def predicted_crossing(results: Results) -> dict[str, tuple[float, float]]:
    """Look up where the experiment predicts the crossing: in p, and in GRPO's share of mixed groups."""
    return PREDICTED.get(results["experiment"].get("name", ""), {})


def map_lines(results: Results, rate: float | None) -> list[str]:
    """Write the map as tables, a rival each, with the n of every point."""
    lines = []
    for rival in RIVALS:
        points = places(results, rival, rate)
        if not points:
            continue
        lines += [f"### R3L less {rival}{at_rate(rate)}", ""]
        lines += [
            "| F | p | GRPO's mixed groups | gap after the last iteration | gap of the mean over training | policies |",
            "|---|---|---|---|---|---|",
        ]
        for one in points:
            mixed = "" if one.mixed != one.mixed else f"{one.mixed:.3f}"
            lines.append(
                f"| {one.forgets:g} | {one.p:.3f} | {mixed} | {interval_text(one.over)} | {interval_text(one.area)} "
                f"| {one.over.policies} |"
            )
        at, interval = crossing([(one.p, one.over.mean) for one in points]), crossing_interval(points)
        place_text = "none among these points" if at != at else f"p = {at:.3f}"
        band = (
            f", 95 % bootstrap over policies {interval[0]:.3f} to {interval[1]:.3f}"
            if interval
            else ", no interval (fewer than three policies, or no crossing in most draws)"
        )
        prediction = predicted_crossing(results).get("p")
        prediction_text = f" Predicted: p between {prediction[0]} and {prediction[1]}." if prediction else ""
        lines += ["", f"Crossing: {place_text}{band}.{prediction_text}", ""]
    return lines


def success_lines(results: Results, rate: float | None) -> list[str]:
    """Write each arm's success after the last iteration, by the points of the dial, which the table over all runs
    pools."""
    points = dial(results)
    rows = []
    for arm in dict.fromkeys(cell["arm"] for cell in results["cells"] if cell["rate"] == rate):
        claims = [Claim(claim="", paper="", arm=arm, measure="final", rate=rate, seeds=points[one]) for one in points]
        finals = [[value for (value,) in values(results, claim, arm).values()] for claim in claims]
        rows.append(
            (mean([mean(rates) for rates in finals if rates]), f"| {arm} | {' | '.join(map(mean_text, finals))} |")
        )
    return [
        f"### Success after the last iteration, mean and range over policies{at_rate(rate)}",
        "",
        f"| arm | {' | '.join(f'F = {one:g}' for one in points)} |",
        f"|---|{'---|' * len(points)}",
        *(row for _, row in sorted(rows, reverse=True)),
        "",
    ]


def mean_text(rates: Sequence[float]) -> str:
    """Write the mean; of several also the least, the largest and how many they are."""
    if len(rates) < 2:
        return "".join(f"{one:.3f}" for one in rates)
    return f"{mean(rates):.3f} ({min(rates):.3f} to {max(rates):.3f}; {len(rates)})"


def interval_text(over: Gap) -> str:
    """Write the mean with its 95 % interval over policies; for one policy with the error by the test episodes alone."""
    low, high = over.interval
    return f"{over.mean:+.3f} " + (
        f"[{low:+.3f}, {high:+.3f}]" if over.policies > 1 else f"(test episodes: ± {over.error:.3f})"
    )


def map_section(results: Results, folder: str) -> list[str]:
    """Write the map of an experiment's page; nothing where its policies are on no dial."""
    rates = list(dict.fromkeys(cell["rate"] for cell in results["cells"])) if dial(results) else []
    lines = [line for rate in rates for line in map_lines(results, rate)]
    lines += [line for rate in rates for line in success_lines(results, rate)]
    picture = [f"![The gap of R3L over GRPO]({folder}/map.svg)", ""] if drawn_places(results) else []
    return ["## The map", "", *picture, *lines, *policy_lines(results)] if lines else []


def policy_lines(results: Results) -> list[str]:
    """List the digests of the starting policies, so that another maker of them can compare."""
    began: dict[int, dict[str, set[float | None]]] = defaultdict(lambda: defaultdict(set))
    for cell in results["cells"]:
        if digest := results["policies"].get(cell["run"]):
            began[cell["seed"]][digest].add(cell["rate"])
    places = {seed: policy_of(results, seed) for seed in sorted(began)}
    rows = [
        f"| {place[0]:g} | {place[1]} | {', '.join(map(digest_text, sorted(began[seed].items())))} |"
        for seed, place in places.items()
        if place
    ]
    note = (
        "A digest is of weights and tokenizer, as `r3l warm-start` prints it; what of it is repeatable: "
        "data/policies/README.md. In parentheses: the learning rates of the runs that began from it."
    )
    return (
        ["### The starting policies", "", note, "", "| F | policy | digest |", "|---|---|---|", *rows, ""]
        if rows
        else []
    )


def digest_text(one: tuple[str, set[float | None]]) -> str:
    digest, rates = one
    rates_known = sorted((rate for rate in rates if rate is not None), reverse=True)
    return f"{digest} ({', '.join(f'{rate:g}' for rate in rates_known)})" if rates_known else digest
