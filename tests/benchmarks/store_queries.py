"""A run of many trajectories, and the question for pivots over it beside SQLite and JSON lines: rows of the table.

The run is made of whole columns (no Python row is built), 12 shards an iteration. Ids of one token a list keep the
tables small.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from r3l.store.layout import StageKey
from r3l.store.stage import Store
from r3l.store.tables.schemas import TABLES

TURNS = 10
BASES = 4


def column(type_: pa.DataType, rows: int) -> pa.Array:
    """A neutral value, `rows` times."""
    if pa.types.is_list(type_):
        one = pa.array([1 if pa.types.is_integer(type_.value_type) else 0.5] * rows, type_.value_type)
        return pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), one)
    neutral = {pa.string(): "", pa.bool_(): True}.get(type_, 0)
    return pa.repeat(pa.scalar(neutral, type_), rows)


def table(name: str, rows: int, **given: Any) -> pa.Table:
    return pa.table(
        {
            c.name: given[c.name]
            if c.name in given
            else (pa.nulls(rows, c.type) if c.nullable else column(c.type, rows))
            for c in TABLES[name]
        }
    )


def ids(pattern: str, *parts: np.ndarray) -> pa.Array:
    return pa.array([pattern.format(*values) for values in zip(*(part.tolist() for part in parts), strict=True)])


def shard(
    iteration: int, number: int, tasks: int, chance: np.random.Generator
) -> Iterator[tuple[str, dict[str, pa.Table]]]:
    """The stages of one shard: 4 bases a task, a reflection on each, a retry of every failure, its distilled
    trajectory."""
    task = np.repeat(np.arange(tasks) + number * tasks, BASES)
    attempt = np.tile(np.arange(BASES), tasks)
    base = ids(f"iteration={iteration}/task={{}}/base={{}}", task, attempt)
    rows, won = len(base), chance.random(len(base)) < 0.3
    place = {
        "iteration": pa.repeat(iteration, rows).cast(pa.int32()),
        "task": pa.array(task, pa.int32()),
        "group_id": ids(f"iteration={iteration}/task={{}}", task),
        "attempt": pa.array(attempt, pa.int32()),
    }
    about = {
        "task_id": ids("task {}", task % 5000),
        "task_type": ids("type {}", task % 6),
        "status": pa.repeat("completed", rows),
    }
    made = {"turns": pa.repeat(TURNS, rows).cast(pa.int32()), "kind": pa.repeat("base", rows)}
    outcome = {"reward": pa.array(won, pa.float32()), "success": pa.array(won)}
    bases = table("trajectories", rows, trajectory_id=base, **place, **about, **made, **outcome)
    yield "base", {"trajectories": bases, "turns": turns(base, iteration)}
    reflection = pa.compute.binary_join_element_wise(base, "reflection=0", "/")
    decision = pa.array(np.where(won, "outcome is success", "retry"))
    yield (
        "reflections",
        {
            "reflections": table(
                "reflections",
                rows,
                **place,
                reflection_id=reflection,
                trajectory_id=base,
                base_id=base,
                status=pa.repeat("parsed", rows),
                outcome=pa.array(np.where(won, "success", "failure")),
                decision=decision,
            )
        },
    )
    failed, pivot = pa.array(~won), chance.integers(0, TURNS, len(base))
    better = pa.array((chance.random(len(base)) < 0.4), pa.float32())
    links = {
        "base_id": base,
        "parent_id": base,
        "reflection_id": reflection,
        "pivot_turn": pa.array(pivot, pa.int32()),
        "shared_turns": pa.array(pivot, pa.int32()),
        "reward": better,
        "success": better.cast(pa.bool_()),
    }
    for stage, kind in (("retries", "retry"), ("distilled", "distilled")):
        own = pa.compute.binary_join_element_wise(base, f"{kind}=0", "/")
        retry = {"retry_id": pa.compute.binary_join_element_wise(base, "retry=0", "/")} if kind == "distilled" else {}
        whole = table(
            "trajectories",
            rows,
            trajectory_id=own,
            **place,
            **about,
            **made | {"kind": pa.repeat(kind, rows)},
            **links,
            **retry,
        )
        members = whole.filter(failed)
        yield stage, {"trajectories": members, "turns": turns(members["trajectory_id"].combine_chunks(), iteration)}
    everyone = pa.concat_arrays([base, members["trajectory_id"].combine_chunks()])
    n = len(everyone)
    same = {
        name: pa.concat_arrays([place[name], members[name].combine_chunks()])
        for name in ("iteration", "task", "group_id")
    }
    reward = pa.concat_arrays([outcome["reward"], members["reward"].combine_chunks()])
    advantage = pa.array(chance.normal(size=n))
    yield (
        "credit",
        {
            "credit": table(
                "credit",
                n,
                trajectory_id=everyone,
                kind=pa.array(["base"] * rows + ["distilled"] * (n - rows)),
                reward=reward,
                **same,
                advantage=advantage,
                scaled=advantage,
                rule=pa.repeat("positive", n),
                group_size=pa.repeat(4, n).cast(pa.int32()),
            )
        },
    )
    yield (
        "training_rows",
        {
            "training_rows": table(
                "training_rows",
                n,
                row_id=pa.compute.binary_join_element_wise(everyone, "row", "/"),
                source_id=everyone,
                role=pa.repeat("explore", n),
                group_id=same["group_id"],
                iteration=same["iteration"],
                trained_tokens=pa.repeat(1, n).cast(pa.int32()),
            )
        },
    )


def turns(trajectories: pa.Array, iteration: int) -> pa.Table:
    rows = len(trajectories) * TURNS
    own = {
        "trajectory_id": pa.array(np.repeat(trajectories.to_numpy(zero_copy_only=False), TURNS)),
        "turn": pa.array(np.tile(np.arange(TURNS), len(trajectories)), pa.int32()),
    }
    return table("turns", rows, **own, iteration=pa.repeat(iteration, rows).cast(pa.int32()))


def fill(store: Store, trajectories: int, tasks: int) -> int:
    """A run with about so many trajectories (bases, retries and distilled); returns its iterations."""
    chance = np.random.default_rng(0)
    per_shard = int(tasks * BASES * 2.4)
    shards = max(1, round(trajectories / per_shard))
    for number in range(shards):
        iteration, part = divmod(number, 12)
        for stage, tables in shard(iteration, part, tasks, chance):
            store.commit(StageKey("big", "", iteration, stage, part), tables, fingerprint="f", metrics={"seconds": 1.0})
        if part == 11:
            store.commit(StageKey("big", "", iteration, "updates"), {}, fingerprint="f")
    return (shards + 11) // 12


PIVOTS = """
SELECT r.pivot_turn, count(*), avg(CASE WHEN r.reward > b.reward THEN 1 ELSE 0 END)
FROM trajectories r JOIN trajectories b ON b.trajectory_id = r.base_id
WHERE r.kind = 'retry' GROUP BY r.pivot_turn
"""


def pivot_sides(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, Callable[[], float]]:
    """Processor seconds of the question for pivots: here, of SQLite with its key indexed, and of JSON lines of the
    trajectories alone, read by Python."""
    lite, path = sqlite3.connect(folder / "rows.sqlite"), folder / "rows.jsonl"
    lite.execute(
        "CREATE TABLE trajectories (trajectory_id TEXT PRIMARY KEY, kind TEXT, reward REAL, base_id TEXT, pivot_turn "
        "INTEGER)"
    )
    rows = connection.execute("SELECT trajectory_id, kind, reward, base_id, pivot_turn FROM trajectories").fetchall()
    lite.executemany("INSERT INTO trajectories VALUES (?, ?, ?, ?, ?)", rows)
    lite.commit()
    connection.execute(f"COPY (SELECT * FROM trajectories) TO '{path}' (FORMAT json)")

    def cost(ask: Callable[[], object]) -> Callable[[], float]:
        def seconds() -> float:
            began = time.process_time()
            ask()
            return time.process_time() - began

        return seconds

    def lines() -> None:
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        base = {row["trajectory_id"]: row["reward"] for row in rows}
        found: dict[int, list[bool]] = {}
        for row in rows:
            if row["kind"] == "retry":
                found.setdefault(row["pivot_turn"], []).append(row["reward"] > base[row["base_id"]])

    return {
        "r3l": cost(lambda: connection.execute(PIVOTS).fetchall()),
        "SQLite": cost(lambda: lite.execute(PIVOTS).fetchall()),
        "JSON lines": cost(lines),
    }
