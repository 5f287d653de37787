"""`data/RESULTS.md`: each claim against what the kept results say, and a count of the verdicts."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from r3l.lab.study.claims import Claim, Claims, Results, differences, gap, rate_of, shares
from r3l.lab.study.compare import mean
from r3l.lab.study.verdicts import Gap, adjusted, verdict

NOT_RUN, NOT_TESTABLE = "not run", "not testable here"


class Held(NamedTuple):
    """A claim for one experiment and learning rate."""

    claim: Claim
    results: Results | None
    gap: Gap | None


def results_page(claims: Claims, folder: Path) -> str:
    """Return the page as Markdown: sentences to quote, the count of verdicts, details, the claims that were run, then
    those that were not."""
    kept = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    held = [held_at(place, kept) for claim in claims.claims for place in places(claim)]
    measured = [one for one in held if one.gap]
    qs = adjusted([one.gap.p for one in measured if one.gap])
    judged = [verdict(one.gap, q, one.claim.direction) for one, q in zip(measured, qs, strict=True) if one.gap]
    table = [row(one, q, said) for one, q, said in zip(measured, qs, judged, strict=True)]
    missing = [one for one in claims.claims if not any(other.claim.claim == one.claim for other in measured)]
    counted = Counter(judged) | Counter({NOT_RUN: sum(bool(one.experiment) for one in missing)})
    counted |= Counter({NOT_TESTABLE: sum(not one.experiment for one in missing)})
    lines = [claims.preface.strip("\n"), "", "## Verdicts", "", "| verdict | rows |", "|---|---|"]
    lines += [
        f"| {name} | {count} |" for name, count in sorted(counted.items(), key=lambda one: (-one[1], one[0])) if count
    ]
    lines += ["", "## Details", "", claims.details.strip("\n")] if claims.details else []
    lines += ["", "## Claims that were run", "", COLUMNS, "|---|---|---|---|---|---|", *table]
    lines += ["", "## Claims that were not run", "", "| claim | the paper's figures | reason |", "|---|---|---|"]
    lines += [f"| {one.claim} | {one.paper} | {one.note if not one.experiment else NOT_RUN} |" for one in missing]
    return "\n".join(lines) + "\n"


COLUMNS = (
    "| claim | the paper's figures | experiment, learning rate | measured here | difference, 95 % interval; p, "
    "q | verdict |"
)


def places(claim: Claim) -> list[Claim]:
    """Return the claim itself, then the same held against its further results and learning rates."""
    further: list[dict[str, Any]] = [{"experiment": other} for other in claim.also]
    further += [{"experiment": other, "rate": rate} for other, rates in claim.also_at.items() for rate in rates]
    return [claim, *(claim.model_copy(update={"note": "", **one}) for one in further)]


def held_at(claim: Claim, kept: dict[str, Results]) -> Held:
    results = kept.get(claim.experiment)
    return Held(claim, results, gap(results, claim) if results else None)


def row(held: Held, q: float, judged: str) -> str:
    claim, results, measured = held
    if results is None or measured is None:
        raise ValueError(
            f"claim {claim.claim!r} was not run at {claim.experiment}: it has no row among those that were"
        )
    rate = rate_of(results, claim)
    where = f"[{claim.experiment}](results/{claim.experiment}.md){'' if rate is None else f', {rate:g}'}"
    notes = ". ".join(filter(None, [values_text(results, claim), claim.note]))
    return f"| {claim.claim} | {claim.paper} | {where} | {notes} | {gap_text(measured, q)} | {judged} |"


def values_text(results: Results, claim: Claim) -> str:
    """Return what both sides reached."""
    pairs = differences(results, claim).values()
    ours, theirs = mean([a for a, _ in pairs]), mean([b for _, b in pairs])
    digits = ".3f" if ours < 100 else ",.0f"
    said = f"{claim.arm} {ours:{digits}}, {claim.against or 'its first third'} {theirs:{digits}}"
    if claim.question:
        both = shares(results, claim).values()
        return f"{said}; of {sum(a['n'] for a, _ in both)} and {sum(b['n'] for _, b in both)}"
    return f"{claim.measure}: {said}"


def gap_text(measured: Gap, q: float) -> str:
    digits = ".3f" if abs(measured.mean) < 100 else ",.0f"
    low, high = measured.interval
    n = (
        f"{measured.policies} {'policy' if measured.policies == 1 else 'policies'}, "
        f"{measured.seeds} {'seed' if measured.seeds == 1 else 'seeds'}"
    )
    if math.isnan(low):
        return f"{measured.mean:+{digits}} (error by the test episodes alone {measured.error:{digits}}); {n}"
    return f"{measured.mean:+{digits}} [{low:+{digits}}, {high:+{digits}}]; p {share(measured.p)}, q {share(q)}; {n}"


def share(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
