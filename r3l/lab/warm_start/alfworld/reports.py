"""Reports that a policy learns to write: a perfect reflector's, and some that are wrong on purpose."""

import random

from r3l.environments.alfworld.oracle import Record, Report, failure_report
from r3l.environments.base import report

VAGUE = ("Look more carefully.", "Open closed places.", "Do not repeat actions.")
WASTED_TURNS = 4  # from here on a success counts as inefficient


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
