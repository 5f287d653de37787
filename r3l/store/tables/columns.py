"""A column of a table: its name, its type in Arrow and in DuckDB, what it means."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

IDS = pa.list_(pa.int32())
FLOATS = pa.list_(pa.float32())
STRS = pa.list_(pa.string())
STR, INT, F32, F64, BOOL = pa.string(), pa.int32(), pa.float32(), pa.float64(), pa.bool_()


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False


def C(name: str, type_: pa.DataType, meaning: str) -> Column:
    return Column(name, type_, meaning)


def N(name: str, type_: pa.DataType, meaning: str) -> Column:
    return Column(name, type_, meaning, nullable=True)


def duck_type(type_: pa.DataType) -> str:
    """The DuckDB name of a column's type."""
    if pa.types.is_list(type_):
        return f"{duck_type(type_.value_type)}[]"
    names = {
        "string": "VARCHAR",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "bool": "BOOLEAN",
    }
    return names[str(type_)]
