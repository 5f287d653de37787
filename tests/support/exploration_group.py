"""Records of one exploration group, short to write: ids name the base, log-probs are -token / 10."""

from r3l.records import Episode
from tests.support import records

GROUP = "iteration=0/task=0"


def trajectory(name, kind, attempt, reward=0.0, turns=1, **more):
    return records.trajectory(
        kind, attempt, reward=reward, turns=turns, **({"trajectory_id": f"{GROUP}/{name}"} | more)
    )


def base(attempt, **more):
    return trajectory(f"base={attempt}", "base", attempt, **more)


def lineage(attempt, pivot, base_attempt):
    """The base that was retried, the turn from which, and the reflection that it was told."""
    root = attempt if base_attempt is None else base_attempt
    return {
        "base_id": f"{GROUP}/base={root}", "parent_id": f"{GROUP}/base={root}", "pivot_asked": pivot,
        "pivot_turn": pivot, "shared_turns": pivot, "reflection_id": f"{GROUP}/reflection={attempt}",
    }  # fmt: skip


def retry(attempt, pivot=0, base_attempt=None, **more):
    return trajectory(f"retry={attempt}", "retry", attempt, **(lineage(attempt, pivot, base_attempt) | more))


def distilled(attempt, pivot=0, base_attempt=None, **more):
    made_of = lineage(attempt, pivot, base_attempt) | {"retry_id": f"{GROUP}/retry={attempt}"}
    return trajectory(f"distilled={attempt}", "distilled", attempt, **(made_of | more))


def reflection(attempt, pivot=0, outcome="failure", target=None, **more):
    base_id = f"{GROUP}/base={attempt}"
    named = {"base_id": base_id, "reflection_id": f"{GROUP}/reflection={attempt}", "trajectory_id": target or base_id}
    return records.reflection(pivot=pivot, outcome=outcome, **(named | more))


def played(trajectory, *pairs, first=0):
    """An episode of (context, reply) pairs; `first` is the number of its first turn."""
    turns = [
        records.turn(trajectory.trajectory_id, number, context=context, reply=reply)
        for number, (context, reply) in enumerate(pairs, first)
    ]
    return Episode(trajectory, turns)
