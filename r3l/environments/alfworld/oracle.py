"""Reflections made from the goal and the recorded turns, with the paper's JSON keys, some of them wrong on purpose."""

import random
from dataclasses import dataclass
from typing import Any

from r3l.environments.alfworld.searcher import LISTED, TREATED, Errand, kind, receptacles_in

Report = dict[str, Any]
VAGUE = ("Look more carefully.", "Open closed places.", "Do not repeat actions.")
WASTED_TURNS = 4  # from here on a success counts as inefficient


@dataclass(frozen=True, slots=True)
class Record:
    """A played episode: observation k came before action k, the last one after the last action."""

    errand: Errand
    observations: list[str]
    actions: list[str]
    won: bool


def report(summary: str, cause: str, outcome: str, suggestion: str, pivot: int) -> Report:
    return {
        "trajectory_summary": summary,
        "root_cause_analysis": cause,
        "trajectory_outcome": outcome,
        "improvement_suggestion": suggestion,
        "retry_from_step": pivot,
    }


def reflect(record: Record) -> Report:
    """Write the report of a reflector that makes no mistakes."""
    return success_report(record) if record.won else failure_report(record)


def success_report(record: Record) -> Report:
    dull = [turn for turn, text in enumerate(record.observations[1:]) if text.startswith("Nothing happens")]
    if len(dull) + len(record.actions) - len(set(record.actions)) < WASTED_TURNS:
        return report(f"The {record.errand.target} is placed.", "No mistake.", "success", "Keep this plan.", 0)
    return report(
        f"The {record.errand.target} is placed late.",
        "Some turns did nothing.",
        "success_but_inefficient",
        "Do not repeat actions.",
        dull[0] if dull else 0,
    )


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
        verb, device = (
            errand.treatment[0],
            next(item for item in receptacles_in(observations[0]) if kind(item) == errand.treatment[1]),
        )
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


def with_mistakes(true: Report, turns: int, rng: random.Random, share: float) -> tuple[Report, bool]:
    """Make a report that is wrong in about `share` of the failures, and say whether its suggestion still helps.

    Wrong means, in equal parts: a pivot some turns off, a suggestion that says nothing, or (half as often) a failure
    that is called a success.
    """
    if true["trajectory_outcome"] != "failure" or rng.random() >= share:
        return true, True
    mistake = rng.choice(("pivot", "pivot", "suggestion", "suggestion", "outcome"))
    if mistake == "pivot":
        true_pivot = true["retry_from_step"]
        wrong = max(0, min(turns - 1, true_pivot + rng.choice((-3, -2, -1, 1, 2))))
        summary = true["trajectory_summary"].replace(f"Turn {true_pivot} ", f"Turn {wrong} ")
        return {**true, "retry_from_step": wrong, "trajectory_summary": summary}, True
    if mistake == "suggestion":
        return {**true, "improvement_suggestion": rng.choice(VAGUE)}, False
    return {
        **true,
        "trajectory_outcome": "success",
        "improvement_suggestion": "Keep this plan.",
        "retry_from_step": 0,
    }, False
