"""The two stages of a method: exploration groups to credit, credit to training rows. No method is named here."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from r3l.config.methods.shared import MethodSettings
from r3l.methods.base import ROWLESS, LeftOut, Lesson, Method, PlayedGroup
from r3l.methods.rows import explore_row, reflect_row, retry_row
from r3l.methods.taught.contexts import ActionIds, action_spans
from r3l.records import Credit, Episode, Event, Kind, Reflection, Status, TrainingRow, Trajectory, Turn


def credit_groups(
    method: Method[Any], settings: MethodSettings, trajectories: Sequence[Trajectory], turns: Sequence[Turn]
) -> tuple[list[Credit], list[Event]]:
    """Credit whole groups. Each base and distilled trajectory gives a credit or an event; retries and continuations are
    no members."""
    credits: list[Credit] = []
    events: list[Event] = []
    turns_of: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        turns_of[turn.trajectory_id].append(turn)
    continuations = by_group(one for one in trajectories if one.kind == Kind.CONTINUATION)
    for group in by_group(one for one in trajectories if one.kind in {Kind.BASE, Kind.DISTILLED}).values():
        usable = [member for member in group if Status(member.status).trainable]
        left_out = [
            LeftOut(one.trajectory_id, f"{one.status}: {one.reason}")
            for one in group
            if not Status(one.status).trainable
        ]
        members, not_selected = method.select(settings, usable)
        events += [event(group[0].iteration, "credit", "dropped", item) for item in [*left_out, *not_selected]]
        if members:
            group_credit = method.credit(settings, members)
            refuse_odd_credit(method, members, group_credit)
            if method.credits_turns:
                member_turns = [turns_of[member.trajectory_id] for member in members]
                usable_continuations = [
                    one for one in continuations.get(group[0].group_id, []) if Status(one.status).trainable
                ]
                group_credit = by_turn(
                    method, settings, PlayedGroup(members, group_credit, member_turns, usable_continuations)
                )
            credits += group_credit
    return credits, events


def refuse_odd_credit(method: Method[Any], members: Sequence[Trajectory], credits: Sequence[Credit]) -> None:
    """Raise ValueError where a method does not give each member, in their order, a finite advantage."""
    name, ids = f"{type(method).__name__}.credit", [one.trajectory_id for one in members]
    if (credited := [one.trajectory_id for one in credits]) != ids:
        raise ValueError(f"{name}: credit of {credited}, expected one of each member, in their order: {ids}")
    for one in credits:
        if not math.isfinite(one.advantage):
            raise ValueError(f"{name}: advantage {one.advantage} of {one.trajectory_id}, expected a finite number")


def by_turn(method: Method[Any], settings: MethodSettings, group: PlayedGroup) -> list[Credit]:
    """Give the members' credit an advantage for each turn.

    Raises:
        ValueError: the method gave a member more or fewer advantages than it has turns, or one that is not finite.
    """
    if settings.outcome_gate and not any(member.success for member in group.members):
        advantages_of = [np.zeros(len(turns)) for turns in group.turns]
    else:
        advantages_of = method.turn_advantages(settings, group)
    for member, turns, advantages in zip(group.members, group.turns, advantages_of, strict=True):
        if len(advantages) != len(turns):
            raise ValueError(
                f"{type(method).__name__}.turn_advantages: {len(advantages)} advantages for the {len(turns)} turns of "
                f"{member.trajectory_id}; return one per turn"
            )
        if not np.isfinite(advantages).all():
            raise ValueError(
                f"{type(method).__name__}.turn_advantages: {list(advantages)} of {member.trajectory_id}, expected "
                "finite numbers"
            )
    return [
        replace(one, turn_advantages=[float(value) for value in advantages])
        for one, advantages in zip(group.credit, advantages_of, strict=True)
    ]


def training_rows(
    method: Method[Any],
    settings: MethodSettings,
    episodes: Sequence[Episode],
    reflections: Sequence[Reflection],
    credits: Sequence[Credit],
    action_ids: ActionIds | None = None,
) -> tuple[list[TrainingRow], list[Event]]:
    """Make the rows of the groups' members, then of the meta-tasks. Each credit, and each reflection, gives a row or an
    event."""
    by_id = {episode.trajectory.trajectory_id: episode for episode in episodes}
    rows, events = member_rows(method, settings, by_id, credits, action_ids)
    more_rows, more_events = meta_task_rows(method, settings, by_id, reflections, credits)
    return rows + more_rows, events + more_events


def member_rows(
    method: Method[Any],
    settings: MethodSettings,
    episodes: dict[str, Episode],
    credits: Sequence[Credit],
    action_ids: ActionIds | None,
) -> tuple[list[TrainingRow], list[Event]]:
    """Make one row for every credited member that has a gradient; an event `no_gradient` for every other."""
    rows: list[TrainingRow] = []
    events: list[Event] = []
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes.values():
        groups[episode.trajectory.group_id].append(episode)
    for credit in credits:
        member = episodes[credit.trajectory_id]
        objective, taught = method.objective(settings, member.trajectory), method.taught(settings, credit.iteration)
        teacher = method.teacher(settings, member, groups[credit.group_id]) if taught else None
        if teacher:
            spans = {"spans": action_spans(member, action_ids)} if action_ids else {}
            reading = taught | teacher._asdict() | spans
            objective = replace(objective, settings={**objective.settings, "teacher": reading})
        row = explore_row(settings, objective, member, credit)
        untaught = "it has no teacher" if method.taught_only and not teacher else ""
        if reason := untaught or no_gradient(row, credit):
            events.append(
                event(credit.iteration, "training_rows", "no_gradient", LeftOut(credit.trajectory_id, reason))
            )
        else:
            rows.append(row)
    return rows, events


def meta_task_rows(
    method: Method[Any],
    settings: MethodSettings,
    episodes: dict[str, Episode],
    reflections: Sequence[Reflection],
    credits: Sequence[Credit],
) -> tuple[list[TrainingRow], list[Event]]:
    """Make a row for every lesson; an event `no_meta_task` for every reflection, and every retry, that is none."""
    attempts = by_group(episode.trajectory for episode in episodes.values())
    sizes = {credit.group_id: credit.group_size for credit in credits}
    rows: list[TrainingRow] = []
    events: list[Event] = []
    for group_id, group in by_group(reflections).items():
        lessons, left_out = method.lessons(settings, attempts[group_id], group)
        rows += [lesson_row(method, settings, episodes, lesson, sizes.get(group_id, 1)) for lesson in lessons]
        events += [event(group[0].iteration, "training_rows", "no_meta_task", item) for item in left_out]
    return rows, events


def lesson_row(
    method: Method[Any], settings: MethodSettings, episodes: dict[str, Episode], lesson: Lesson, group_size: int
) -> TrainingRow:
    """Make the row of a reflection, or of the retry that it guided."""
    if lesson.retry is None:
        objective = method.report_objective(settings)
        return reflect_row(settings, objective, lesson.reflection, lesson.advantage, group_size)
    objective = method.lesson_objective(settings)
    parent = episodes[lesson.retry.parent_id or lesson.reflection.trajectory_id]
    retry, kept = episodes[lesson.retry.trajectory_id], parent.turns[: lesson.kept_turns]
    return retry_row(settings, objective, retry, kept, lesson.advantage, group_size)


def no_gradient(row: TrainingRow, credit: Credit) -> str:
    """Explain why a member has no row; empty where it has one. A row of advantage 0 is there for its KL term, or
    because its tokens count in a mean over all tokens."""
    if not row.token_ids:
        return "no turn of it is stored"
    if row.trained_tokens == 0:
        return f"fully masked: no sampled token from turn {credit.mask_turn} on"
    zero = row.advantage == 0 if row.advantages is None else not any(row.advantages)
    needless = zero and row.kl_coefficient == 0 and row.reduction != "tokens"
    return f"advantage {row.advantage:g} ({credit.rule})" if needless or credit.rule in ROWLESS else ""


def by_group(records: Iterable[Any]) -> dict[str, list[Any]]:
    """Sort records by group, in order of appearance."""
    groups: dict[str, list[Any]] = defaultdict(list)
    for record in records:
        groups[record.group_id].append(record)
    return groups


def event(iteration: int, stage: str, name: str, left_out: LeftOut) -> Event:
    return Event(iteration, stage, left_out.subject_id, name, left_out.reason)
