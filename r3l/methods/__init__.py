"""Methods by the `kind` of their settings, and the two stages that flows run: neither they nor the trainer know a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from r3l.config.methods import AnyMethod
from r3l.methods.base import Method
from r3l.methods.grpo import GRPO
from r3l.methods.r3l import R3L
from r3l.methods.stages import Explored, credit_groups, training_rows
from r3l.records import Credit, Event, Plan, Reflection, TrainingRow, Trajectory, Turn

METHODS: dict[str, Method[Any]] = {
    "r3l": R3L(),
    "grpo": GRPO(),
}


def plan(settings: AnyMethod, group_size: int) -> Plan:
    """What exploration samples for one task, within `group_size` = N trajectories."""
    return METHODS[settings.kind].plan(settings, group_size)


def credit_stage(settings: AnyMethod, trajectories: Sequence[Trajectory]) -> tuple[list[Credit], list[Event]]:
    """The credit of every member of every group. `trajectories`: base and distilled ones, groups whole.

    Each trajectory gives one `Credit` or one `dropped` event with its reason.
    """
    return credit_groups(METHODS[settings.kind], settings, trajectories)


def training_rows_stage(settings: AnyMethod, trajectories: Sequence[Trajectory], turns: Sequence[Turn],
                        reflections: Sequence[Reflection], credit: Sequence[Credit], retries: Sequence[Trajectory] = (),
                        retry_turns: Sequence[Turn] = ()) -> tuple[list[TrainingRow], list[Event]]:
    """The rows that the update job reads. `trajectories` and `turns`: base and distilled; `retries` as they ran, with guidance.

    Each credited member gives one row or one `no_gradient` event; each reflection that is no lesson a `no_meta_task` event.
    """
    explored = Explored(trajectories, turns, reflections, retries, retry_turns)
    return training_rows(METHODS[settings.kind], settings, explored, credit)
