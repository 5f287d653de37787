"""The columns of a table: made from the fields of the record that is its row."""

from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints

import pyarrow as pa

from r3l.records import Column

Drop = Literal["logprobs", "tokens", "all", "policies"]  # what `r3l prune` can give back
NUMBERS = {(int, 32): pa.int32(), (int, 64): pa.int64(), (float, 32): pa.float32(), (float, 64): pa.float64()}
OTHERS = {
    str: pa.string(),
    bool: pa.bool_(),
    list[int]: pa.list_(pa.int32()),
    list[float]: pa.list_(pa.float32()),
    list[str]: pa.list_(pa.string()),
}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its name, its type in Arrow, and what the record says of it."""

    name: str
    type: pa.DataType
    said: Column
    nullable: bool = False

    @property
    def meaning(self) -> str:
        return self.said.meaning

    def dropped_by(self, drop: Drop) -> bool:
        """Tell whether pruning empties it."""
        order = ("logprobs", "tokens", "all")
        least = self.said.dropped_with
        return bool(least) and drop in order and order.index(least) <= order.index(drop)


def columns_of(record: type) -> list[TableColumn]:
    """Make a column for each field, in the order of the fields.

    Raises:
        TypeError: a field says no `Column`, or is of a type that no column has.
    """
    hints = get_type_hints(record, include_extras=True)
    return [column_of(f"{record.__name__}.{field.name}", field.name, hints[field.name]) for field in fields(record)]


def column_of(place: str, name: str, hint: Any) -> TableColumn:
    kind, *annotations = get_args(hint) or (hint,)
    column = next((one for one in annotations if isinstance(one, Column)), None)
    if column is None:
        raise TypeError(f"{place}: {hint} says no column; write Annotated[type, Column('what it is')]")
    options = get_args(kind) if NoneType in get_args(kind) else (kind,)
    plain = next(option for option in options if option is not NoneType)
    type_ = NUMBERS.get((plain, column.bits)) or OTHERS.get(plain)
    if type_ is None:
        type_names = "int, float, str, bool, list[int], list[float] or list[str], each also with `| None`"
        raise TypeError(f"{place}: no column has values of {plain}; expected {type_names}")
    return TableColumn(name, type_, column, nullable=len(options) > 1)


def duck_type(type_: pa.DataType) -> str:
    """Name a column's type in DuckDB."""
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
