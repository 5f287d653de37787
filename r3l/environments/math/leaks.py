"""Checks that the policy was never shown a gold answer: before guidance is used, and over the stored rows of math
tasks."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from r3l.environments.base import Leak
from r3l.records import Reflection, Task, Trajectory, Turn

# A single character stands for many things (a turn, a term): it is an answer only where it is said to be one.
CLAIM = r"(?:\banswer|\bresult|\bequals?|\bis|\bbe|=)[^.\n]{0,12}?"


def gold_leaks(
    tasks: Iterable[Task],
    trajectories: Iterable[Trajectory],
    turns: Iterable[Turn],
    reflections: Iterable[Reflection] = (),
) -> list[Leak]:
    """Find every stored text that the policy read and that holds the gold answer where it should not. Empty: none.

    An opening may hold it only if the question itself does. Feedback may never. Guidance, of the reflections that a
    retry followed, may only where it stands in the question or in the policy's own replies (see `reveals`).
    """
    problems = {task.task_id: json.loads(task.payload) for task in tasks if task.environment == "math"}
    episodes = [one for one in trajectories if one.task_id in problems]
    problem_of = {one.trajectory_id: problems[one.task_id] for one in episodes}
    turns_of: dict[str, list[Turn]] = defaultdict(list)
    for turn in sorted(turns, key=lambda turn: turn.turn):
        turns_of[turn.trajectory_id].append(turn)
    leaks = [
        leak for one in episodes for leak in of_episode(one, turns_of[one.trajectory_id], problem_of[one.trajectory_id])
    ]
    for reflection in reflections:
        problem = problem_of.get(reflection.trajectory_id)
        replies = [turn.response for turn in turns_of[reflection.trajectory_id]]
        if problem and reflection.decision == "retry" and reveals(problem, reflection.report, replies):
            leaks.append(Leak(reflection.reflection_id, "guidance", problem["gold"], reflection.report))
    return leaks


def reveals(problem: dict[str, str], report: str, replies: Sequence[str]) -> bool:
    """Tell whether a reflection's report tells the gold answer. One that quotes the question or the policy's own
    replies reveals nothing."""
    gold = problem["gold"]
    if any(holds(gold, text) for text in (problem["question"], *replies)):
        return False
    return any(holds(gold, text) for text in texts_of(report))


def texts_of(report: str) -> Iterator[str]:
    """Yield the texts in a report: `retry_from_step` is a number of turns, not an answer. Free prose is one text."""
    try:
        values = [json.loads(report)]
    # an invalid reflection may be told, too: prose, nested without end, or numbers without end
    except (ValueError, RecursionError):
        values = [report]
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            values += value.values() if isinstance(value, dict) else value


def of_episode(trajectory: Trajectory, turns: list[Turn], problem: dict[str, str]) -> list[Leak]:
    """Find leaks in the opening, and in the feedback on each valid reply: what is said about a malformed one knows
    nothing of the problem."""
    leaks = []
    if turns and turns[0].turn == 0:
        leaks = leaks_of(
            f"{turns[0].trajectory_id}/turn=0",
            "opening",
            problem["gold"],
            turns[0].observation.replace(problem["question"], ""),
        )
    answers = [turn.observation for turn in turns[1:]] + [trajectory.final_observation]
    for turn, feedback in zip(turns, answers, strict=False):
        if turn.valid:
            leaks += leaks_of(f"{turn.trajectory_id}/turn={turn.turn}", "feedback", problem["gold"], feedback)
    return leaks


def leaks_of(subject: str, where: str, gold: str, text: str) -> list[Leak]:
    return [Leak(subject, where, gold, text)] if holds(gold, text) else []


def holds(gold: str, text: str) -> bool:
    """Tell whether `text` holds `gold` as a whole word or number, whatever the spacing: 12 is not in 112, 1.12 or 12.5.
    A gold answer of one character has to be the whole text, or be called the answer: 7 is in "so it is 7", not in "in
    turn 7"."""
    gold_pattern = r"\s*".join(re.escape(part) for part in gold.split())
    whole = rf"(?<![\w.])(?<!\d,){gold_pattern}(?!\w|[.,]\d)"
    if len(gold.strip()) == 1:
        return text.strip() == gold.strip() or re.search(CLAIM + whole, text, re.IGNORECASE) is not None
    return bool(gold_pattern) and re.search(whole, text) is not None
