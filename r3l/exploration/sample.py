"""Base trajectories: episodes from the start, without guidance (paper, Eq. 4)."""

import asyncio

from r3l.errors import WorldError
from r3l.exploration.episode import Played, Start, play
from r3l.exploration.explorer import Explorer
from r3l.records import Episode, Kind, Status, Task, Trajectory, observation_hash


async def sample(
    explorer: Explorer,
    task: Task,
    attempt: int,
    *,
    kind: Kind = Kind.BASE,
    name: str = "base",
    temperature: float | None = None,
) -> Episode:
    """Play one episode of `task` from the start; `name` is the last part of its id."""
    trajectory_id = f"{task.group_id}/{name}={attempt}"
    try:
        opening = await asyncio.wrap_future(explorer.pool.start(trajectory_id, task))
    except WorldError as error:
        explorer.progress.add(kind.stage, done=1)
        return episode(explorer, task, trajectory_id, kind, attempt, Played().end(Status.ENVIRONMENT_ERROR, str(error)))
    context = explorer.opening(opening.text)
    start = Start(trajectory_id, task.iteration, task.seed, 0, opening.text, context, context)
    return episode(explorer, task, trajectory_id, kind, attempt, await play(explorer, start, kind.stage, temperature))


def episode(
    explorer: Explorer,
    task: Task,
    trajectory_id: str,
    kind: Kind,
    attempt: int,
    played: Played,
    **lineage: str | int | None,
) -> Episode:
    """Make the rows of what was played."""
    pivot = lineage.get("pivot_turn") or 0
    hashes = None if played.rolled_back is None else [observation_hash(text) for text in played.rolled_back]
    trajectory = Trajectory(
        trajectory_id=trajectory_id,
        kind=kind,
        iteration=task.iteration,
        task=task.task,
        task_id=task.task_id,
        task_type=task.task_type,
        group_id=task.group_id,
        attempt=attempt,
        status=played.status,
        reason=played.reason,
        reward=played.reward,
        success=played.success,
        turns=max([int(pivot), *(turn.turn + 1 for turn in played.turns)]),
        response_tokens=sum(len(turn.response_ids) for turn in played.turns),
        final_observation=played.final_observation,
        policy=explorer.policy,
        seed=task.seed,
        seconds=played.seconds,
        rollback_hashes=hashes,
        **lineage,  # type: ignore[arg-type]
    )
    return Episode(trajectory, played.turns)
