"""Each arm at one learning rate: for every starting policy the one with the largest mean success over training on the
other policies, so that no policy chooses for itself."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from r3l.lab.study.compare import Curve, area, binomial_variance, by_policy, error_over, mean, plateau
from r3l.lab.study.results import Results
from r3l.lab.study.text import with_error

Runs = Mapping[str, Mapping[float, Sequence[Curve]]]  # of an arm: by starting policy and learning rate


class Chosen(NamedTuple):
    """An arm at the rates chosen. Means over starting policies, errors as everywhere."""

    arm: str
    rates: dict[str, float]  # by starting policy
    area: float
    area_error: float
    plateau: float
    plateau_error: float


def at_chosen_rates(arm: str, runs: Runs, episodes: int) -> Chosen:
    """Summarise the arm at the rates chosen on the other policies; with one policy on itself."""
    rates = {policy: rate_for(policy, runs) for policy in runs}
    curve_of_policy = [(policy, curve) for policy, rate in rates.items() for curve in runs[policy][rate]]
    policies, figures = [policy for policy, _ in curve_of_policy], []
    for measure in (area, plateau):
        heights = [measure(curve) for _, curve in curve_of_policy]
        noise = [binomial_variance(measure, curve, episodes) for _, curve in curve_of_policy]
        figures += [mean(by_policy(policies, heights)), error_over(policies, heights, noise)]
    return Chosen(arm, rates, *figures)


def rate_for(policy: str, runs: Runs) -> float:
    """Choose the policy's rate with the largest mean area over the other policies; the smaller of two equals."""
    others = [other for other in runs if other != policy] or [policy]

    def height(rate: float) -> float:
        return mean([mean([area(curve) for curve in runs[other][rate]]) for other in others])

    return max(sorted(runs[policy]), key=height)


def with_all_rates(runs: Runs) -> Runs:
    """Keep the policies that were run at each of the arm's learning rates: rates are compared over the same policies.
    Nothing where there is one rate."""
    rates = {rate for of in runs.values() for rate in of}
    return {policy: of for policy, of in runs.items() if len(of) == len(rates) > 1}


def over_common_policies(runs_of_arm: Mapping[str, Runs]) -> dict[str, Runs]:
    """Keep every arm's runs from the policies that all of the arms have; nothing where they share none."""
    if not runs_of_arm or not (common := set.intersection(*map(set, runs_of_arm.values()))):
        return {}
    return {arm: {policy: of for policy, of in runs.items() if policy in common} for arm, runs in runs_of_arm.items()}


def chosen_rate_section(results: Results) -> list[str]:
    """Write the table; nothing where the experiment has runs at one rate alone."""
    by_arm: dict[str, dict[str, dict[float, list[Curve]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for cell in results.cells:
        if cell.rate is not None:
            by_arm[cell.arm.name][cell.config.policy.path][cell.rate].append(results.curves[cell.config.run])
    runs_of_arm = over_common_policies(
        {arm: choices for arm, runs in by_arm.items() if (choices := with_all_rates(runs))}
    )
    if not runs_of_arm:
        return []
    rows = sorted(
        (at_chosen_rates(arm, runs, results.test_episodes) for arm, runs in runs_of_arm.items()),
        key=lambda one: -one.area,
    )
    alone = any(len(one.rates) == 1 for one in rows)
    note = (
        "For each starting policy the rate with the largest mean success over training on the other policies. Only "
        "policies that every arm was run from at all of its rates count."
    )
    flattering = "An arm with one policy has its rate chosen by the same figures, which flatters it."
    return [
        "## Each arm at its best learning rate",
        "",
        " ".join([note, *([flattering] if alone else [])]),
        "",
        "| arm | learning rate, by policy | policies | area under the curve ± s.e. | plateau ± s.e. |",
        "|---|---|---|---|---|",
        *map(line, rows),
        "",
    ]


def line(one: Chosen) -> str:
    rates = ", ".join(f"{rate:g}" for rate in one.rates.values())
    figures = f"{with_error(one.area, one.area_error)} | {with_error(one.plateau, one.plateau_error)}"
    return f"| {one.arm} | {rates} | {len(one.rates)} | {figures} |"
