"""The check for shown gold answers over what a store holds."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import duckdb

from r3l.environments.mathematics_leaks import Leak, gold_leaks
from r3l.records import Reflection, Task, Trajectory, Turn

Row = TypeVar("Row", Task, Trajectory, Turn, Reflection)


def stored_leaks(connection: duckdb.DuckDBPyConnection) -> list[Leak]:
    """Every leak in the runs and branches of a catalog connection (`r3l.store.catalog.connect`), in their order."""
    places = connection.execute("SELECT DISTINCT run, branch FROM tasks WHERE environment = 'math' ORDER BY ALL").fetchall()
    return [leak for run, branch in places for leak in gold_leaks(
        rows(connection, "tasks", Task, run, branch), rows(connection, "trajectories", Trajectory, run, branch),
        rows(connection, "turns", Turn, run, branch), rows(connection, "reflections", Reflection, run, branch))]


def rows(connection: duckdb.DuckDBPyConnection, table: str, record: type[Row], run: str, branch: str) -> list[Row]:
    """The rows of a table as records; branches see what they took over from the run."""
    names = [field.name for field in fields(record)]
    columns = ", ".join(f'"{name}"' for name in names)
    found = connection.execute(f"SELECT {columns} FROM lines.{table} WHERE run = ? AND branch = ?", [run, branch])
    return [made(record, dict(zip(names, row, strict=True))) for row in found.fetchall()]


def made(record: type[Row], values: dict[str, Any]) -> Row:
    return record(**values)
