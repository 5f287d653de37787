"""Stages that earlier versions of the code wrote, read as if this one had: what they lack is filled in.

A new column says at its field since which version of the table it is there, and what older rows have in it: a value, or
what another column of theirs says.

An earlier version could also store a reward that is no finite number. Such an attempt is read as what it would be
today: one that failed.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from r3l.records import Same
from r3l.store.tables.columns import duck_type
from r3l.store.tables.schemas import TABLES, arrow_schema

Before = Same | float | str | None
# (table, version that brought the column) -> column: what rows of earlier versions have in it.
ADDED: dict[tuple[str, int], dict[str, Before]] = {}
for table, columns in TABLES.items():
    for column in columns:
        if column.said.since > 1:
            ADDED.setdefault((table, column.said.since), {})[column.name] = column.said.before
# What a row has whose reward is no finite number.
FAILED: dict[str, float | str | bool] = {
    "reward": 0.0,
    "success": False,
    "status": "environment_error",
    "reason": "its reward, stored by an earlier version, is no finite number",
}


def lacking(table: str, version: int) -> dict[str, Before]:
    """List the columns that a table of this version doesn't have, with what stands in their place."""
    later = [columns for (name, since), columns in ADDED.items() if name == table and since > version]
    return {column: value for columns in later for column, value in columns.items()}


def names_in_version(table: str, version: int) -> list[str]:
    """List the columns that a part of this version has, in the present order. What another column equals was stored, if
    under a name that means something else by now."""
    later_columns = lacking(table, version)
    sources = {value.column for value in later_columns.values() if isinstance(value, Same)}
    return [column.name for column in TABLES[table] if column.name not in later_columns or column.name in sources]


def upgrade(rows: pa.Table, table: str, version: int) -> pa.Table:
    """Convert rows of an earlier version to the present schema."""
    schema = arrow_schema(table)
    later_columns = lacking(table, version)
    columns = {
        name: fill_column(rows, later_columns[name], schema.field(name).type) if name in later_columns else rows[name]
        for name in schema.names
    }
    return failed_where_no_number(pa.table(columns).cast(schema))


def needed_beside(table: str, names: Iterable[str]) -> set[str]:
    """Name what has to be read to know the rows that failed."""
    return {"reward"} & set(arrow_schema(table).names) if FAILED.keys() & set(names) else set()


def failed_where_no_number(rows: pa.Table) -> pa.Table:
    """Mark the rows without a finite reward as failed ones."""
    if "reward" not in rows.column_names or pc.all(finite := pc.is_finite(rows["reward"])).as_py() is not False:
        return rows
    for name in FAILED.keys() & set(rows.column_names):
        field = rows.schema.field(name)
        values = pc.if_else(finite, rows[name], pa.scalar(FAILED[name], field.type))
        rows = rows.set_column(rows.schema.get_field_index(name), field, values)
    return rows


def fill_column(rows: pa.Table, value: Before, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return rows[value.column].cast(type_) if isinstance(value, Same) else pa.array([value] * rows.num_rows, type_)


def select_list(table: str, version: int) -> str:
    """Write the same in SQL: the present columns, out of a part of this version."""
    later_columns = lacking(table, version)
    return ", ".join(
        f"{expression(later_columns[field.name], field.type)} AS {quote(field.name)}"
        if field.name in later_columns
        else present(table, field.name)
        for field in arrow_schema(table)
    )


def present(table: str, name: str) -> str:
    if name not in FAILED or not needed_beside(table, [name]):
        return quote(name)
    # null, of what is paid no reward, stays null
    return f"CASE WHEN NOT isfinite(reward) THEN {FAILED[name]!r} ELSE {quote(name)} END AS {quote(name)}"


def expression(value: Before, type_: pa.DataType) -> str:
    if isinstance(value, Same):
        return quote(value.column)
    return f"NULL::{duck_type(type_)}" if value is None else repr(value)


def quote(name: str) -> str:
    return f'"{name}"'
