"""Continuations: from a turn of a base, rolled back to and played on as the policy would, to see what it is worth
there."""

from r3l.exploration.explorer import Explorer
from r3l.exploration.retry import as_it_was, play_from
from r3l.exploration.sample import episode
from r3l.records import Episode, Event, Kind, SamplingPlan, Status, Task


def continued_turns(turns: int, most: int) -> list[int]:
    """Choose up to `most` turns after the first, spread evenly over an episode of so many."""
    count = min(most, max(turns - 1, 0))
    return [-(-k * turns // (count + 1)) for k in range(1, count + 1)]


def wanted_of(plan: SamplingPlan, base: Episode) -> list[tuple[Episode, int, int]]:
    """List (base, turn, number) of each continuation that the plan asks for."""
    if not Status(base.trajectory.status).trainable:
        return []
    turns = continued_turns(len(base.turns), plan.continued_turns)
    return [(base, turn, number) for turn in turns for number in range(plan.continuations)]


async def continue_from(explorer: Explorer, task: Task, base: Episode, turn: int, number: int) -> Episode:
    """Play turn `turn` of the base anew, and what follows. One that diverged or failed is a row without a turn of its
    own."""
    about = base.trajectory
    name = f"{about.trajectory_id}/from={turn}/continuation={number}"
    result, _ = await play_from(
        explorer, task, base.turns, name, turn, "continuations", lambda pivot, _: as_it_was(base.turns, pivot)
    )
    lineage: dict[str, str | int | None] = {
        "base_id": about.trajectory_id,
        "parent_id": about.trajectory_id,
        "pivot_turn": turn,
        "shared_turns": turn,
    }
    return episode(explorer, task, name, Kind.CONTINUATION, number, result, **lineage)


def unusable(continuation: Episode) -> Event | None:
    """Make the event of a continuation that says nothing about its turn; None where it does."""
    one = continuation.trajectory
    if Status(one.status).trainable:
        return None
    event = "diverged" if one.status == Status.DIVERGED else "dropped"
    return Event(one.iteration, "continuations", one.trajectory_id, event, one.reason or one.status)
