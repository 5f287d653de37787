"""Whether the policy was ever shown a gold answer: a check over the stored rows of math tasks (METHOD section 8)."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from r3l.records import Reflection, Task, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Leak:
    """A text that holds the gold answer of its task. where: opening, feedback or guidance."""

    subject_id: str
    where: str
    gold: str
    text: str


def gold_leaks(tasks: Iterable[Task], trajectories: Iterable[Trajectory], turns: Iterable[Turn],
               reflections: Iterable[Reflection] = ()) -> list[Leak]:
    """Every stored text that the policy read and that holds the gold answer where it should not. Empty: none.

    An opening may hold it only if the question itself does. Feedback may never. Guidance may only where it stands in
    the question or in the policy's own replies, since a reflector that quotes those reveals nothing.
    """
    problems = {task.task_id: json.loads(task.payload) for task in tasks if task.environment == "math"}
    episodes = [one for one in trajectories if one.task_id in problems]
    told = {one.trajectory_id: problems[one.task_id] for one in episodes}
    played: dict[str, list[Turn]] = defaultdict(list)
    for turn in sorted(turns, key=lambda turn: turn.turn):
        played[turn.trajectory_id].append(turn)
    leaks = [leak for one in episodes
             for leak in of_episode(one, played[one.trajectory_id], told[one.trajectory_id])]
    for reflection in reflections:
        problem = told.get(reflection.trajectory_id)
        known = [turn.response for turn in played[reflection.trajectory_id]]
        if problem and not any(holds(problem["gold"], text) for text in [problem["question"], *known]):
            leaks += found(reflection.reflection_id, "guidance", problem["gold"], reflection.report)
    return leaks


def of_episode(trajectory: Trajectory, turns: list[Turn], problem: dict[str, str]) -> list[Leak]:
    """The opening, and the feedback on each valid reply: what is said about a malformed one knows nothing of the problem."""
    leaks = []
    if turns and turns[0].turn == 0:
        leaks = found(f"{turns[0].trajectory_id}/turn=0", "opening", problem["gold"], turns[0].observation.replace(problem["question"], ""))
    answers = [turn.observation for turn in turns[1:]] + [trajectory.final_observation]
    for turn, feedback in zip(turns, answers, strict=False):
        if turn.valid:
            leaks += found(f"{turn.trajectory_id}/turn={turn.turn}", "feedback", problem["gold"], feedback)
    return leaks


def found(subject: str, where: str, gold: str, text: str) -> list[Leak]:
    return [Leak(subject, where, gold, text)] if holds(gold, text) else []


def holds(gold: str, text: str) -> bool:
    """Whether `text` holds `gold` as a whole word or number, whatever the spacing: 12 is not in 112, 1.12 or 12.5."""
    wanted = r"\s*".join(re.escape(part) for part in gold.split())
    return bool(wanted) and re.search(rf"(?<![\w.])(?<!\d,){wanted}(?!\w|[.,]\d)", text) is not None
