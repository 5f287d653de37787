"""Evaluation episodes: the same rules as base rollouts, at the test temperature, without reflection or retry."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from r3l.exploration.explorer import Explorer
from r3l.exploration.sample import sample
from r3l.records import Episode, EvaluatedEpisode, Kind, Status, Task


def evaluation_stage(
    explorer: Explorer, tasks: Sequence[Task], repeats: int, temperature: float, name: str = "evaluation"
) -> list[Episode]:
    """Play `repeats` episodes of every task, in the order of the tasks; `name` tells the evaluations of an iteration
    apart in their ids."""

    async def play_all() -> list[Episode]:
        return list(
            await asyncio.gather(
                *(
                    sample(explorer, task, repeat, kind=Kind.EVALUATION, name=name, temperature=temperature)
                    for task in tasks
                    for repeat in range(repeats)
                )
            )
        )

    explorer.progress.add("evaluations", planned=len(tasks) * repeats)
    return asyncio.run(play_all())


def evaluation_rows(episodes: Sequence[Episode], about: Mapping[str, Any]) -> list[EvaluatedEpisode]:
    """Make rows of the table `evaluations`. `about`: the columns that say of which evaluation they are. An episode that
    the world or the engine broke counts as reward 0."""
    rows = []
    for one in episodes:
        trajectory = one.trajectory
        whole = Status(trajectory.status).trainable
        rows.append(
            EvaluatedEpisode(
                trajectory_id=trajectory.trajectory_id,
                iteration=trajectory.iteration,
                **about,
                repeat=trajectory.attempt,
                task_id=trajectory.task_id,
                task_type=trajectory.task_type,
                policy=trajectory.policy,
                status=trajectory.status,
                reward=trajectory.reward if whole else 0.0,
                success=trajectory.success and whole,
                turns=trajectory.turns,
            )
        )
    return rows
