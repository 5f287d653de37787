"""Controls of an experiment: retries from another pivot than the reflection's, or under another guidance than its own.

They answer what carries the gain: where a retry begins, or what it is told.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from r3l.exploration.explorer import Explorer
from r3l.exploration.oracle import oracle_pivot
from r3l.records import Episode, Reflection, SamplingPlan, Task
from r3l.system.seeds import derive

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
