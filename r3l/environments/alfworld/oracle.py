"""Reports on failures, made from the goal and the recorded turns, with the paper's JSON keys."""

from dataclasses import dataclass
from typing import Any

from r3l.environments.alfworld.errand import LISTED, TREATED, Errand, kind, receptacles_in
from r3l.environments.base import report

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A played episode: observation k came before action k, the last one after the last action."""

    errand: Errand
    observations: list[str]
    actions: list[str]
    won: bool


def failure_report(record: Record) -> Report:
    """Write the report on a failure: the pivot is the turn after the one that the rest depends on; the summary quotes
    the observation before it."""
    errand, observations = record.errand, record.observations
    took = [turn for turn, text in enumerate(observations) if text.startswith(f"You pick up the {errand.target} ")]
    if took:
        return failed_in_hand(record, took[0])
    sightings = [
        turn
        for turn, text in enumerate(observations)
        if turn and (match := LISTED.search(text)) and f" {errand.target} " in match[1]
    ]
    pivot = min(sightings[0] if sightings else 1, len(record.actions) - 1)
    if sightings:
        return report(
            f"Saw {errand.target}. Turn {pivot} did not take it.",
            f"Did not take {errand.target}.",
            "failure",
            f"Take {errand.target} when it is seen.",
            pivot,
        )
    return report(
        f"Did not find {errand.target}. Turn {pivot} went astray.",
        "The search was too slow.",
        "failure",
        f"Look for {errand.target} in every place.",
        pivot,
    )


def failed_in_hand(record: Record, took: int) -> Report:
    errand, observations = record.errand, record.observations
    name = " ".join(observations[took].split()[4:6])
    treatments = [
        turn
        for turn, text in enumerate(observations)
        if (match := TREATED.match(text)) and kind(match[1]) == errand.target
    ]
    if errand.treatment and not treatments:
        verb = errand.treatment[0]
        device = next(item for item in receptacles_in(observations[0]) if kind(item) == errand.treatment[1])
        pivot = min(took, len(record.actions) - 1)
        return report(
            f"{observations[took]} Turn {pivot} did not {verb} it.",
            f"Did not {verb} {name}.",
            "failure",
            f"Before placing, {verb} {name} with {device}.",
            pivot,
        )
    after = treatments[0] if treatments else took
    pivot = min(after, len(record.actions) - 1)
    return report(
        f"{observations[after]} Turn {pivot} did not place it.",
        f"Did not place {name}.",
        "failure",
        f"Go to {errand.parent} 1 and move {name} to {errand.parent} 1.",
        pivot,
    )
