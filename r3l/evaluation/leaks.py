"""The check for shown gold answers over what a store holds."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import duckdb

from r3l.environments.base import Leak
from r3l.environments.kinds import ENVIRONMENTS, world_class
from r3l.records import Reflection, Task, Trajectory, Turn
from r3l.store.catalog import connect
from r3l.store.damage import Finding
from r3l.store.stage import Store

Row = TypeVar("Row", Task, Trajectory, Turn, Reflection)
PLACES = "SELECT DISTINCT run, branch, iteration, environment FROM stored.tasks ORDER BY ALL"
TOKENS = ("context_ids", "response_ids", "response_logprobs")  # the check reads texts


def check_leaks(store: Store, run: str) -> list[Finding]:
    """Find every text of the run's tasks that showed the policy a gold answer, as findings of `r3l check`."""
    with connect(store, [run], question=PLACES) as connection:
        if not played_for_gold(connection):
            return []
    with connect(store, [run]) as connection:
        return [
            Finding(
                "leaks",
                f"{run} {leak.subject_id}",
                f"the {leak.where} holds the gold answer {leak.gold!r}: {leak.text[:200]!r}",
            )
            for leak in leaks_in_store(connection)
        ]


def leaks_in_store(connection: duckdb.DuckDBPyConnection) -> list[Leak]:
    """Find every leak in the runs and branches of a catalog connection (`r3l.store.catalog.connect`), in their
    order."""
    return [
        leak
        for place, world in played_for_gold(connection)
        for leak in world.gold_leaks(
            rows(connection, "tasks", Task, place),
            rows(connection, "trajectories", Trajectory, place),
            rows(connection, "turns", Turn, place),
            rows(connection, "reflections", Reflection, place),
        )
    ]


def played_for_gold(connection: duckdb.DuckDBPyConnection) -> list[tuple[list[Any], Any]]:
    """List the iterations of worlds that know gold answers, each with its world."""
    return [
        (place, world_class(kind))
        for *place, kind in connection.execute(PLACES).fetchall()
        if kind in ENVIRONMENTS and hasattr(world_class(kind), "gold_leaks")
    ]


def rows(connection: duckdb.DuckDBPyConnection, table: str, record: type[Row], place: Sequence[Any]) -> list[Row]:
    """Read the rows of a table in one iteration as records, without their tokens; branches see what they took over from
    the run."""
    names = [field.name for field in fields(record)]
    columns = ", ".join(f'[] AS "{name}"' if name in TOKENS else f'"{name}"' for name in names)
    answer = connection.execute(
        f"SELECT {columns} FROM lines.{table} WHERE run = ? AND branch = ? AND iteration = ?", place
    )
    return [record(**dict(zip(names, row, strict=True))) for row in answer.fetchall()]
