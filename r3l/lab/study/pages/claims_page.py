"""`data/RESULTS.md` and `data/UNDECIDED.md`: each claim against what the kept results say."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from r3l.lab.study.claims import Claim, Claims, Results, differences, gap, rate_of, shares
from r3l.lab.study.compare import mean
from r3l.lab.study.verdicts import Gap, adjust, policies_to_decide, verdict

UNDECIDED = "UNDECIDED.md"  # beside the page of the decided claims
DECIDED = ("holds", "does not hold")  # how their verdicts begin
NOT_RUN, NOT_TESTABLE = "not run", "not testable here"


class Held(NamedTuple):
    """A claim for one experiment and learning rate."""

    claim: Claim
    results: Results | None
    gap: Gap | None


class Pages(NamedTuple):
    """`decided`: the sentences to quote, the decided rows, the count of verdicts. `undecided`: details, the other rows,
    and the claims that were not run."""

    decided: str
    undecided: str


def results_pages(claims: Claims, folder: Path) -> Pages:
    """Hold the claims against the kept results in `folder`, and write both pages as Markdown."""
    results_of = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    comparisons = [held_at(place, results_of) for claim in claims.claims for place in places(claim)]
    run_comparisons = [one for one in comparisons if one.gap]
    qs = adjust([one.gap.p for one in run_comparisons if one.gap])
    verdicts = [verdict(one.gap, q, one.claim.direction) for one, q in zip(run_comparisons, qs, strict=True) if one.gap]
    rows: dict[bool, list[str]] = {True: [], False: []}
    for one, q, verdict_text in zip(run_comparisons, qs, verdicts, strict=True):
        is_decided = verdict_text.startswith(DECIDED)
        rows[is_decided].append(row(one, q, verdict_text) + ("" if is_decided else f" {needed(one)} |"))
    missing = [one for one in claims.claims if not any(other.claim.claim == one.claim for other in run_comparisons)]
    counts = Counter(verdicts) | Counter({NOT_RUN: sum(bool(one.experiment) for one in missing)})
    counts |= Counter({NOT_TESTABLE: sum(not one.experiment for one in missing)})
    rows_of_verdict = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    decided_lines = [claims.preface.strip("\n"), "", "## Decided claims", "", *COLUMNS, *rows[True], ""]
    decided_lines += ["## All verdicts", "", "| verdict | rows |", "|---|---|"]
    decided_lines += [f"| {name} | {count} |" for name, count in rows_of_verdict if count]
    decided_lines += ["", f"[What is undecided or was not run]({UNDECIDED})."]
    open_rows = [
        "# What is undecided",
        "",
        "The other rows of [the results](RESULTS.md), which say how they are judged. The last column says how many "
        f"starting policies decide a true gap of {TO_SEE} of success (p at most 0.05 in four of five cases, before the "
        "adjustment for many claims), if they spread as those that were run.",
        "",
    ]
    open_rows += ["## Details", "", claims.details.strip("\n"), ""] if claims.details else []
    open_rows += ["## Claims that were run", "", f"{COLUMNS[0]} policies for {TO_SEE} |", f"{COLUMNS[1]}---|"]
    open_rows += [*rows[False], ""]
    open_rows += ["## Claims that were not run", "", "| claim | the paper's figures | reason |", "|---|---|---|"]
    open_rows += [f"| {one.claim} | {one.paper} | {one.note if not one.experiment else NOT_RUN} |" for one in missing]
    return Pages("\n".join(decided_lines) + "\n", "\n".join(open_rows) + "\n")


COLUMNS = (
    "| claim | the paper's figures | experiment, learning rate | measured here | difference, 95 % interval; p, q "
    "| verdict |",
    "|---|---|---|---|---|---|",
)


TO_SEE = 0.15  # a gap of success that would matter to who chooses a method


def needed(comparison: Held) -> str:
    """Say how many policies would decide about it; nothing where the figure is no share."""
    claim, results, difference = comparison
    if results is None or difference is None or max(map(max, differences(results, claim).values())) > 1:
        return ""
    return str(policies_to_decide(TO_SEE, difference) or "")


def places(claim: Claim) -> list[Claim]:
    """Repeat the claim: itself, then the same held against its further results and learning rates."""
    further: list[dict[str, Any]] = [{"experiment": other} for other in claim.also]
    further += [{"experiment": other, "rate": rate} for other, rates in claim.also_at.items() for rate in rates]
    return [claim, *(claim.model_copy(update={"note": "", **one}) for one in further)]


def held_at(claim: Claim, results_of: dict[str, Results]) -> Held:
    results = results_of.get(claim.experiment)
    return Held(claim, results, gap(results, claim) if results else None)


def row(comparison: Held, q: float, verdict_text: str) -> str:
    claim, results, difference = comparison
    if results is None or difference is None:
        raise ValueError(
            f"claim {claim.claim!r} was not run at {claim.experiment}: it has no row among those that were"
        )
    rate = rate_of(results, claim)
    where = f"[{claim.experiment}](results/{claim.experiment}.md){'' if rate is None else f', {rate:g}'}"
    notes = ". ".join(filter(None, [values_text(results, claim), claim.note]))
    return f"| {claim.claim} | {claim.paper} | {where} | {notes} | {gap_text(difference, q)} | {verdict_text} |"


def values_text(results: Results, claim: Claim) -> str:
    """Say what both sides reached."""
    pairs = differences(results, claim).values()
    ours, theirs = mean([a for a, _ in pairs]), mean([b for _, b in pairs])
    digits = ".3f" if ours < 100 else ",.0f"
    figures_text = f"{claim.arm} {ours:{digits}}, {claim.against or 'its first third'} {theirs:{digits}}"
    if claim.question:
        both = shares(results, claim).values()
        return f"{figures_text}; of {sum(a['n'] for a, _ in both)} and {sum(b['n'] for _, b in both)}"
    return f"{claim.measure}: {figures_text}"


def gap_text(difference: Gap, q: float) -> str:
    digits = ".3f" if abs(difference.mean) < 100 else ",.0f"
    low, high = difference.interval
    n = (
        f"{difference.policies} {'policy' if difference.policies == 1 else 'policies'}, "
        f"{difference.seeds} {'seed' if difference.seeds == 1 else 'seeds'}"
    )
    if math.isnan(low):
        return f"{difference.mean:+{digits}} (error by the test episodes alone {difference.error:{digits}}); {n}"
    return (
        f"{difference.mean:+{digits}} [{low:+{digits}}, {high:+{digits}}]; p {share(difference.p)}, q {share(q)}; {n}"
    )


def share(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
