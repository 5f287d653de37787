"""Read records from stored stages, and turn records into the tables of a stage."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from r3l.records import Credit, Episode, Event, OraclePivot, Reflection, Task, TrainingRow, Trajectory, Turn
from r3l.store import manifest as manifests
from r3l.store.layout import StageKey, StageRef
from r3l.store.stage import Store

Tables = dict[str, Any]
Record = TypeVar("Record", Task, Trajectory, Turn, Reflection, OraclePivot, Credit, TrainingRow)


def records(store: Store, ref: StageRef, table: str, kind: type[Record]) -> list[Record]:
    """Read all rows of one table of a stage, in the order they were written."""
    return [kind(**row) for row in store.read(ref, table).to_pylist()]


def records_of(store: Store, refs: Iterable[StageRef], table: str, kind: type[Record]) -> list[Record]:
    """Read the same of several stages."""
    return [one for ref in refs for one in records(store, ref, table, kind)]


def reference(store: Store, key: StageKey) -> StageRef:
    """Find the stage that is stored under a key. Raise `StoreError` where there is none."""
    return manifests.reference(store.manifest(key))


def tasks(store: Store, ref: StageRef, slots: range | None = None) -> list[Task]:
    """Read the batch, or the slots of one shard of it."""
    return [task for task in records(store, ref, "tasks", Task) if slots is None or task.task in slots]


def episodes(store: Store, refs: Iterable[StageRef]) -> list[Episode]:
    """Read trajectories with their turns, over several stages."""
    all_episodes = []
    for ref in refs:
        turns: dict[str, list[Turn]] = defaultdict(list)
        for turn in records(store, ref, "turns", Turn):
            turns[turn.trajectory_id].append(turn)
        all_episodes += [
            Episode(one, turns[one.trajectory_id]) for one in records(store, ref, "trajectories", Trajectory)
        ]
    return all_episodes


def episodes_of(store: Store, refs: Sequence[StageRef], *stages: str) -> list[Episode]:
    """Read the episodes of these stages, in the order of the stages."""
    return episodes(store, [ref for stage in stages for ref in refs if ref.stage == stage])


def tables(episodes: Sequence[Episode], events: Sequence[Event] = ()) -> Tables:
    """Make the tables of a stage that made episodes."""
    return {
        "trajectories": [one.trajectory for one in episodes],
        "turns": [turn for one in episodes for turn in one.turns],
        "events": [*events, *(event for one in episodes for event in one.events)],
    }
