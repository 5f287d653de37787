"""Oracle pivots: where the environment itself says that a failed base went wrong. Only controls retry from them:
retries from another pivot than the reflection's, or under another guidance than its own, which answer what carries the
gain.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from r3l.errors import WorldError
from r3l.exploration.explorer import Explorer, gather_all
from r3l.records import Episode, Event, OraclePivot, Reflection, SamplingPlan, Status, Task
from r3l.system.seeds import derive


def oracle_stage(
    explorer: Explorer, tasks: Sequence[Task], bases: Sequence[Episode]
) -> tuple[list[OraclePivot], list[Event]]:
    """Ask for a verdict on every base that is whole and was not won; an oracle that failed is a row without a pivot,
    and an event."""
    by_slot = {task.task: task for task in tasks}
    failures = [
        base
        for base in bases
        if Status(base.trajectory.status).trainable and base.turns and not base.trajectory.success
    ]

    answers = gather_all(oracle_pivot(explorer, by_slot[base.trajectory.task], base) for base in failures)
    return [pivot for pivot, _ in answers], [event for _, events in answers for event in events]


async def oracle_pivot(explorer: Explorer, task: Task, base: Episode) -> tuple[OraclePivot, list[Event]]:
    about = base.trajectory
    actions = [turn.action for turn in base.turns]
    observations = [*(turn.observation for turn in base.turns), about.final_observation]
    try:
        verdict = await asyncio.wrap_future(
            explorer.pool.ask_oracle(f"{about.trajectory_id}/oracle", task, actions, observations)
        )
    except WorldError as error:
        event = Event(about.iteration, "oracle_pivots", about.trajectory_id, "dropped", f"no verdict: {error}")
        return OraclePivot(about.trajectory_id, about.iteration, about.task, about.group_id, None, "no verdict"), [
            event
        ]
    return OraclePivot(about.trajectory_id, about.iteration, about.task, about.group_id, verdict.pivot, verdict.why), []


Wanted = tuple[Episode, Episode, Reflection]  # base, what was reflected on, the reflection


async def apply_controls(
    explorer: Explorer, plan: SamplingPlan, tasks: Mapping[int, Task], wanted: Sequence[Wanted]
) -> list[Wanted]:
    """Give `wanted` the plan's pivots and guidance; nothing changes where the plan asks for the reflections' own."""
    pivots = await asyncio.gather(
        *(
            pivot_of(explorer, plan, tasks[base.trajectory.task], about, reflection)
            for base, about, reflection in wanted
        )
    )
    reports = [report_of(plan, reflection, wanted) for _, _, reflection in wanted]
    return [
        (base, about, replace(reflection, pivot_turn=pivot, report=report))
        for (base, about, reflection), pivot, report in zip(wanted, pivots, reports, strict=True)
    ]


async def pivot_of(
    explorer: Explorer, plan: SamplingPlan, task: Task, about: Episode, reflection: Reflection
) -> int | None:
    if plan.pivot == "random":
        return Random(derive(task.seed, reflection.reflection_id, "random pivot")).randrange(len(about.turns))
    if plan.pivot == "turn_before":
        return reflection.pivot_turn and reflection.pivot_turn - 1
    if plan.pivot == "oracle":
        verdict, _ = await oracle_pivot(explorer, task, about)
        return reflection.pivot_turn if verdict.pivot_turn is None else verdict.pivot_turn
    return reflection.pivot_turn


def report_of(plan: SamplingPlan, reflection: Reflection, wanted: Sequence[Wanted]) -> str:
    """Choose the guidance: the reflection's own report, or for `shuffled` one on another task (its own where there is
    no other)."""
    others = [other.report for _, _, other in wanted if other.task != reflection.task]
    if plan.guidance == "shuffled" and others:
        return Random(derive(reflection.seed, reflection.reflection_id, "shuffled guidance")).choice(others)
    return reflection.report
