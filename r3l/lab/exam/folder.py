"""The folder of an exam: Parquet tables that anybody may score a method on, and the settings they were made under.

exam.json                          run, iteration, policy, environment, seed, and how many continuations per state
trajectories, turns .parquet       the members of the examined groups; turns without their contexts and log-probs
states.parquet                     (trajectory, turn) -> the state before it, named by who came there first
oracle_pivots.parquet              the environment's own verdicts on failed bases, where it gives any
continuations/task=007.parquet     what was played from the states of one group
policy/task=007.parquet            what the policy says of the group's turns: products of gradients, gaps to teachers
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from r3l.credit.advantages import Floats
from r3l.errors import ConfigError, StoreError
from r3l.lab.exam.records import Continuation, Exam, Group, State
from r3l.records import Episode, OraclePivot, Status, Trajectory, Turn
from r3l.store.files.local import LocalFiles, read_object
from r3l.store.tables.parts import decode, encode, to_table

SETTINGS = "exam.json"
SAME = ("run", "branch", "iteration", "policy", "tasks", "seed")  # what the rows of a folder have in common
STATES = pa.schema([("trajectory_id", pa.string()), ("turn", pa.int32()), ("first", pa.string()), ("at", pa.int32())])
TYPES = dict.fromkeys(("group_id", "trajectory_id", "status", "reason"), pa.string())
TYPES |= {"reward": pa.float64(), "success": pa.bool_()}
CONTINUATIONS = pa.schema([(one.name, TYPES.get(one.name, pa.int64())) for one in fields(Continuation)])
TEACHERS: tuple[Literal["success", "guidance"], ...] = ("success", "guidance")
POLICY = pa.schema(
    [("trajectory_id", pa.string()), ("turn", pa.int32()), ("place", pa.int32())]
    + [(name, pa.list_(pa.float32())) for name in ("products", *TEACHERS)]
)


class Folder:
    """The files of an exam. Each is written whole or not at all."""

    def __init__(self, path: Path, reading: bool = False) -> None:
        self.files = LocalFiles(path, reading)

    def begin(
        self,
        settings: Mapping[str, str | int],
        groups: Sequence[tuple[Sequence[Episode], Sequence[Sequence[State]]]],
        oracle: Sequence[OraclePivot],
    ) -> None:
        """Write the settings and what the groups were before anything is played.

        Raises:
            ConfigError: the folder holds an exam of something else.
        """
        there = read_object(self.files, SETTINGS)
        for name in (name for name in SAME if there and there.get(name) != settings[name]):
            raise ConfigError(
                f"{self.files.root}: holds an exam with {name}={there.get(name)!r}, and {settings[name]!r} is asked "
                "for; name another folder by --out"
            )
        episodes = [one for members, _ in groups for one in members]
        lines = [
            {"trajectory_id": turn.trajectory_id, "turn": turn.turn, "first": state.trajectory_id, "at": state.turn}
            for members, states in groups
            for episode, own in zip(members, states, strict=True)
            for turn, state in zip(episode.turns, own, strict=True)
        ]
        turns = [light(turn) for one in episodes for turn in one.turns]
        self._put("trajectories", to_table("trajectories", [one.trajectory for one in episodes]))
        self._put("turns", to_table("turns", turns))
        self._put("states", pa.Table.from_pylist(lines, schema=STATES))
        self._put("oracle_pivots", to_table("oracle_pivots", list(oracle)))
        self.files.put(SETTINGS, json.dumps(dict(settings), indent=1).encode())

    def continuations(self, task: int) -> list[Continuation]:
        """Read what was played from the states of a task's group; nothing where nothing was."""
        return [Continuation(**row) for row in self._rows(f"continuations/task={task:03d}")]

    def keep(self, task: int, continuations: Sequence[Continuation]) -> None:
        """Write a group's continuations, ordered by state and number."""
        rows = [asdict(one) for one in sorted(continuations, key=lambda one: one.place)]
        self._put(f"continuations/task={task:03d}", pa.Table.from_pylist(rows, schema=CONTINUATIONS))

    def keep_policy(self, task: int, rows: Sequence[Mapping[str, Any]]) -> None:
        self._put(f"policy/task={task:03d}", pa.Table.from_pylist(list(rows), schema=POLICY))

    def has_policy(self, task: int) -> bool:
        return self.files.read(f"policy/task={task:03d}.parquet") is not None

    def exam(self) -> Exam:
        """Read the whole folder. Raise `StoreError` where it is none of an exam."""
        settings = read_object(self.files, SETTINGS)
        if not settings:
            raise StoreError(f"{self.files.root}: has no {SETTINGS}; `r3l exam RUN --out {self.files.root}` makes one")
        turns: dict[str, list[Turn]] = defaultdict(list)
        for row in self._rows("turns"):
            turns[row["trajectory_id"]].append(Turn(**row))
        states = {(row["trajectory_id"], row["turn"]): State(row["first"], row["at"]) for row in self._rows("states")}
        oracle = {row["trajectory_id"]: row["pivot_turn"] for row in self._rows("oracle_pivots")}
        members: dict[int, list[Trajectory]] = defaultdict(list)
        for row in self._rows("trajectories"):
            members[row["task"]].append(Trajectory(**row))
        groups = []
        for task, group in members.items():
            rewards: dict[State, dict[int, float]] = defaultdict(dict)
            for one in self.continuations(task):
                if Status(one.status).trainable:
                    state, number = one.place
                    rewards[state][number] = one.reward
            own = [turns[one.trajectory_id] for one in group]
            passed = [[states[turn.trajectory_id, turn.turn] for turn in member] for member in own]
            pivots = {
                one.trajectory_id: oracle[one.trajectory_id]
                for one in group
                if oracle.get(one.trajectory_id) is not None
            }
            groups.append(Group(group, own, passed, rewards, pivots, *self._policy(task)))
        return Exam(settings, groups)

    def _policy(self, task: int) -> tuple[Floats, dict[str, dict[str, list[list[float]]]]]:
        """Read a group's products, made whole of their lower triangle, and its gaps."""
        rows = self._rows(f"policy/task={task:03d}")
        lower = [row["products"] for row in rows if row["products"]]
        products = np.zeros((len(lower), len(lower)))
        for place, products_before in enumerate(lower):
            products[place, : place + 1] = products[: place + 1, place] = products_before
        gaps: dict[str, dict[str, list[list[float]]]] = {by: defaultdict(list) for by in TEACHERS}
        for row in rows:
            for by in (by for by in TEACHERS if row[by] is not None):
                gaps[by][row["trajectory_id"]].append(row[by])
        return products, gaps

    def _put(self, table: str, rows: pa.Table) -> None:
        self.files.put(f"{table}.parquet", encode(rows))

    def _rows(self, table: str) -> list[dict[str, Any]]:
        content = self.files.read(f"{table}.parquet")
        rows: list[dict[str, Any]] = decode(content).to_pylist() if content else []
        return rows


def light(turn: Turn) -> Turn:
    """Leave out what no way of giving credit reads, and what fills most of the bytes."""
    return replace(turn, context_ids=[], response_logprobs=[], response="")
