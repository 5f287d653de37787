"""The two stages of a method: exploration groups to credit, credit to training rows. No method is named here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from r3l.config.methods import MethodSettings
from r3l.methods.base import LeftOut, Method
from r3l.methods.rows import explore_row, reflect_row, retry_row
from r3l.records import Credit, Event, Reflection, Status, TrainingRow, Trajectory, Turn


def credit_groups(method: Method[Any], settings: MethodSettings, trajectories: Sequence[Trajectory]) -> tuple[list[Credit], list[Event]]:
    """Credit for whole groups of base and distilled trajectories. Each trajectory gives a credit or an event."""
    credits: list[Credit] = []
    events: list[Event] = []
    for group in grouped(trajectories).values():
        usable = [member for member in group if Status(member.status).trainable]
        broken = [LeftOut(member.trajectory_id, f"{member.status}: {member.reason}") for member in group if member not in usable]
        members, left_out = method.select(settings, usable) if usable else ([], [])
        events += [event(group[0].iteration, "credit", "dropped", item) for item in broken + left_out]
        if members:
            credits += method.credit(settings, members)
    return credits, events


@dataclass(slots=True)
class Explored:
    """What exploration left behind, by id: groups of whole trajectories, their turns, and the retries with guidance."""

    trajectories: Sequence[Trajectory]
    turns: Sequence[Turn]
    reflections: Sequence[Reflection] = ()
    retries: Sequence[Trajectory] = ()
    retry_turns: Sequence[Turn] = ()
    turns_of: dict[str, list[Turn]] = field(init=False)

    def __post_init__(self) -> None:
        self.turns_of = defaultdict(list)
        for turn in sorted([*self.turns, *self.retry_turns], key=lambda turn: turn.turn):
            self.turns_of[turn.trajectory_id].append(turn)


def training_rows(method: Method[Any], settings: MethodSettings, explored: Explored,
                  credits: Sequence[Credit]) -> tuple[list[TrainingRow], list[Event]]:
    """Rows of the groups' members, then of the meta-tasks. Each member and each reflection gives a row or an event."""
    rows, events = member_rows(method, settings, explored, credits)
    lesson_rows, lesson_events = meta_task_rows(method, settings, explored, credits)
    return rows + lesson_rows, events + lesson_events


def member_rows(method: Method[Any], settings: MethodSettings, explored: Explored,
                credits: Sequence[Credit]) -> tuple[list[TrainingRow], list[Event]]:
    members = {member.trajectory_id: member for member in explored.trajectories}
    rows: list[TrainingRow] = []
    events: list[Event] = []
    for credit in credits:
        member = members[credit.trajectory_id]
        row = explore_row(settings, method.objective(settings, member), member, explored.turns_of[credit.trajectory_id], credit)
        reason = no_gradient(row, credit)
        if reason:
            events.append(event(credit.iteration, "training_rows", "no_gradient", LeftOut(credit.trajectory_id, reason)))
        else:
            rows.append(row)
    return rows, events


def meta_task_rows(method: Method[Any], settings: MethodSettings, explored: Explored,
                   credits: Sequence[Credit]) -> tuple[list[TrainingRow], list[Event]]:
    attempts, reflections = grouped([*explored.trajectories, *explored.retries]), grouped(explored.reflections)
    sizes = {credit.group_id: credit.group_size for credit in credits}
    objective = method.lesson_objective(settings)
    rows: list[TrainingRow] = []
    events: list[Event] = []
    for group_id, group in reflections.items():
        lessons, left_out = method.lessons(settings, attempts[group_id], group)
        events += [event(group[0].iteration, "training_rows", "no_meta_task", item) for item in left_out]
        for reflection, retry in lessons:
            base_turns = explored.turns_of[reflection.base_id]
            size = sizes.get(group_id, 1)
            rows.append(reflect_row(settings, objective, reflection, size) if retry is None else
                        retry_row(settings, objective, retry, base_turns, explored.turns_of[retry.trajectory_id], size))
    return rows, events


def no_gradient(row: TrainingRow, credit: Credit) -> str:
    """Why a row would move nothing; empty where it does. A row of advantage 0 still has a gradient where it has a KL term."""
    if not row.token_ids:
        return "no turn of it is stored"
    if row.trained_tokens == 0:
        return f"fully masked: no sampled token from turn {credit.mask_turn} on"
    if row.advantage == 0 and row.kl_coefficient == 0:
        return f"advantage 0 ({credit.rule})"
    return ""


def grouped(records: Iterable[Any]) -> dict[str, list[Any]]:
    """Records by group, in order of appearance."""
    groups: dict[str, list[Any]] = defaultdict(list)
    for record in records:
        groups[record.group_id].append(record)
    return groups


def event(iteration: int, stage: str, name: str, left_out: LeftOut) -> Event:
    return Event(iteration, stage, left_out.subject_id, name, left_out.reason)
