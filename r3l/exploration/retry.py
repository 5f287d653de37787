"""Retries: roll the world back to the pivot, put the guidance in the context, generate to the end (paper, section
3.1); and context distillation: the parent's prefix and the retry's replies, without the guidance (Eq. 5).
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from r3l.environments.base import Role, Rollback
from r3l.errors import WorldError
from r3l.exploration.episode import Played, Start, play
from r3l.exploration.explorer import Explorer
from r3l.exploration.prompting import Message, guidance
from r3l.exploration.sample import episode
from r3l.records import Episode, Kind, Reflection, SamplingPlan, Status, Task, Turn

Context = tuple[list[int], list[int]]  # ids stored with the first own turn, whole prompt


async def retry(
    explorer: Explorer, task: Task, plan: SamplingPlan, base: Episode, parent: Episode, reflection: Reflection
) -> Episode:
    """Retry from the pivot that `reflection` names in `parent` (the base, or an earlier distilled trajectory of it)."""
    retry_id = f"{base.trajectory.trajectory_id}/retry={reflection.attempt}"
    pivot = 0 if plan.retry_from == "start" else int(reflection.pivot_turn or 0)
    lineage: dict[str, str | int | None] = {
        "base_id": base.trajectory.trajectory_id,
        "parent_id": parent.trajectory.trajectory_id,
        "reflection_id": reflection.reflection_id,
        "pivot_asked": reflection.pivot_asked,
    }
    context = partial(_context, explorer, plan, parent.turns, reflection)
    restart = plan.diverged != "drop"
    result, pivot = await play_from(explorer, task, parent.turns, retry_id, pivot, "retries", context, restart)
    # a retry of a retry shares with the base no more than the shortest prefix on the way
    parent_shared = parent.trajectory.shared_turns
    lineage |= {"pivot_turn": pivot, "shared_turns": pivot if parent_shared is None else min(pivot, parent_shared)}
    return episode(explorer, task, retry_id, Kind.RETRY, base.trajectory.attempt, result, **lineage)


async def play_from(
    explorer: Explorer,
    task: Task,
    turns: list[Turn],
    attempt_id: str,
    pivot: int,
    stage: str,
    context: Callable[[int, Role], Context],
    restart: bool = False,
) -> tuple[Played, int]:
    """Roll the world back to the pivot in `turns` and play on; gives what was played, and from which pivot. A rollback
    that sees other observations is dropped, or restarts at 0.

    Args:
        context: of the pivot and the role of what is seen there.
    """

    async def roll_back(to: int) -> Rollback:
        actions, observations = [one.action for one in turns[:to]], [one.observation for one in turns[: to + 1]]
        return await asyncio.wrap_future(explorer.pool.rollback(attempt_id, task, actions, observations))

    try:
        rollback = await roll_back(pivot)
        if rollback.diverged_at is not None:
            # the kept turns would not be those of this world: either no attempt, or one from the start, which needs no
            # turn
            if not restart or pivot == 0:
                explorer.progress.add(stage, done=1)
                without_turns = Played(rolled_back=rollback.observations[: rollback.diverged_at + 1])
                why = f"turn {rollback.diverged_at}: other observation than recorded"
                return without_turns.end(Status.DIVERGED, why), pivot
            pivot = 0
            rollback = await roll_back(0)
    except WorldError as error:
        explorer.progress.add(stage, done=1)
        return Played().end(Status.ENVIRONMENT_ERROR, f"rollback to turn {pivot}: {error}"), pivot
    ids = context(pivot, rollback.role)
    start = Start(
        attempt_id, task.iteration, task.seed, pivot, rollback.observations[-1], *ids, standing=rollback.standing
    )
    result = await play(explorer, start, stage)
    result.rolled_back = rollback.observations
    return result, pivot


def as_it_was(turns: list[Turn], pivot: int) -> Context:
    """Show at the pivot what was seen there, token by token."""
    ids_before = [token for turn in turns[:pivot] for token in (*turn.context_ids, *turn.response_ids)]
    return turns[pivot].context_ids, ids_before + turns[pivot].context_ids


def _context(
    explorer: Explorer, plan: SamplingPlan, turns: list[Turn], reflection: Reflection, pivot: int, role: Role
) -> Context:
    """Put the guidance in the context. It joins the system prompt at pivot 0; the kept turns are the parent's own ids,
    never rendered again."""
    text = guidance(reflection.report or reflection.text)
    observation = turns[pivot].observation
    if plan.guidance == "none":  # a control
        return as_it_was(turns, pivot)
    if pivot == 0:
        context = explorer.opening(observation, text)
        return context, context
    ids_before = [token for turn in turns[:pivot] for token in (*turn.context_ids, *turn.response_ids)]
    if plan.guidance_position == "system":
        # the system prompt is rendered anew with the guidance in it; the turns behind it stay as they were sampled
        ids_before = ids_before[len(turns[0].context_ids) :]
        context = [*explorer.opening(turns[0].observation, text), *ids_before, *turns[pivot].context_ids]
        return context, context
    messages = _guided(observation, text, role, "user" if plan.guidance_position == "user" else "system")
    context = explorer.chat.following(messages, explorer.chat.closed(turns[pivot - 1].response_ids))
    return context, ids_before + context


def _guided(observation: str, text: str, role: Role, guide: str) -> list[Message]:
    """Put the guidance before the observation at the pivot; what a tool returned stays behind its call."""
    at_pivot = {"role": role, "content": observation}
    if role == "tool":
        return [at_pivot, {"role": guide, "content": text}]
    if guide == "user":
        return [{"role": "user", "content": f"{text}\n\n{observation}"}]
    return [{"role": guide, "content": text}, at_pivot]


def distil(parent: Episode, retry: Episode) -> Episode:
    """Stitch the distilled trajectory. The pivot observation appears once, behind the parent's own context ids.

    parent  C0 A0 | C1 A1  C2 A2                       pivot 1
    retry           G1 B1  D2 B2   (G1 holds the guidance; D2 answers B1)
    result  C0 A0 | C1 B1  D2 B2   (B are the sampled ids, never re-tokenised)
    """
    pivot = int(retry.trajectory.pivot_turn or 0)
    distilled_id = retry.trajectory.trajectory_id.replace("/retry=", "/distilled=")
    suffix = list(retry.turns)
    if suffix:
        suffix[0] = replace(suffix[0], context_ids=parent.turns[pivot].context_ids)
    turns = [replace(turn, trajectory_id=distilled_id) for turn in (*parent.turns[:pivot], *suffix)]
    trajectory = replace(
        retry.trajectory,
        trajectory_id=distilled_id,
        kind=Kind.DISTILLED,
        retry_id=retry.trajectory.trajectory_id,
        seconds=0.0,
        rollback_hashes=None,
        turns=len(turns),
        response_tokens=sum(len(turn.response_ids) for turn in turns),
    )
    return Episode(trajectory, turns)
