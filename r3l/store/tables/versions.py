"""Stages that earlier versions of the code wrote, read as if this one had: what they lack is filled in.

A change of a table raises the version of the stages that write it (schemas.VERSIONS) and gets a line here for each new
column: the column that it equals in older rows, or the value that it has there.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from r3l.store.tables.columns import duck_type
from r3l.store.tables.schemas import TABLES, arrow_schema


@dataclass(frozen=True, slots=True)
class Same:
    """Older rows have, in effect, what another column says."""

    column: str


# (table, version that brought the column) -> column: what rows of earlier versions have in it.
ADDED: dict[tuple[str, int], dict[str, Same | float | str | None]] = {
    # Until then every retry went back to a base: it was the parent, and all that was kept was shared with it.
    ("trajectories", 2): {"parent_id": Same("base_id"), "shared_turns": Same("pivot_turn")},
    ("trajectories", 3): {"rollback_hashes": None},
    ("credit", 2): {"penalty": 0.0},
    # Until then an evaluation's settings were in its manifest alone.
    ("evaluations", 4): dict.fromkeys(("evaluation", "data", "split", "tasks", "of_tasks", "repeats", "seed")),
    # Until then the KL to the behaviour policy went by the name of kl_start, and that to the starting policy was not
    # measured.
    ("updates", 2): {"kl_behaviour": Same("kl_start"), "kl_start": None, "kl_start_tokens": 0},
    ("updates", 3): {"optimiser": None},
}


def lacking(table: str, version: int) -> dict[str, Same | float | str | None]:
    """The columns that a table of this version doesn't have."""
    later = [columns for (name, since), columns in ADDED.items() if name == table and since > version]
    return {column: value for columns in later for column, value in columns.items()}


def names_in_version(table: str, version: int) -> list[str]:
    """The columns that a part of this version has, in the present order. What another column equals was stored, if
    under a name that means something else by now."""
    added = lacking(table, version)
    sources = {value.column for value in added.values() if isinstance(value, Same)}
    return [column.name for column in TABLES[table] if column.name not in added or column.name in sources]


def upgraded(rows: pa.Table, table: str, version: int) -> pa.Table:
    """Rows of an earlier version in the present schema."""
    schema = arrow_schema(table)
    added = lacking(table, version)
    columns = {
        name: filled(rows, added[name], schema.field(name).type) if name in added else rows[name]
        for name in schema.names
    }
    return pa.table(columns).cast(schema)


def filled(rows: pa.Table, value: Same | float | str | None, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return rows[value.column].cast(type_) if isinstance(value, Same) else pa.array([value] * rows.num_rows, type_)


def select_list(table: str, version: int) -> str:
    """The same in SQL: the present columns, out of a part of this version."""
    added = lacking(table, version)
    return ", ".join(
        f"{expression(added[field.name], field.type)} AS {quoted(field.name)}"
        if field.name in added
        else quoted(field.name)
        for field in arrow_schema(table)
    )


def expression(value: Same | float | str | None, type_: pa.DataType) -> str:
    if isinstance(value, Same):
        return quoted(value.column)
    return f"NULL::{duck_type(type_)}" if value is None else repr(value)


def quoted(name: str) -> str:
    return f'"{name}"'
