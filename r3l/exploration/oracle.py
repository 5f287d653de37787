"""Oracle pivots: where the environment itself says that a failed base went wrong. Only a control retries from them."""

import asyncio
from collections.abc import Sequence

from r3l.errors import WorldError
from r3l.exploration.explorer import Explorer
from r3l.records import Episode, Event, OraclePivot, Status, Task


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

    async def all_of_them() -> list[tuple[OraclePivot, list[Event]]]:
        return list(
            await asyncio.gather(*(oracle_pivot(explorer, by_slot[base.trajectory.task], base) for base in failures))
        )

    answers = asyncio.run(all_of_them())
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
