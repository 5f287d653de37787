"""Parquet parts, one per table of a stage: records to bytes and back."""

from array import array
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from r3l.errors import StoreError
from r3l.store.tables.schemas import TABLES, arrow_schema

ROW_GROUP = 10_000
THREADS_FROM = 1 << 20  # bytes
Rows: TypeAlias = "pa.Table | Sequence[Any]"
NUMBERS = {pa.int32(): "i", pa.float32(): "f"}  # in the words of Python's arrays
MISFITS = (pa.ArrowException, OverflowError, UnicodeError)  # what pyarrow raises for a value that its column can't hold


class Misfit(StoreError):
    """A value that its column cannot hold, such as an integer beyond 32 bits."""


def to_table(table: str, rows: Rows) -> pa.Table:
    """Convert rows (records of r3l.records, dicts or an Arrow table) to the table's schema.

    Raises:
        Misfit: a value doesn't fit its column.
        StoreError: they are rows of another table, or a column that may not be null is.
    """
    schema = arrow_schema(table)
    try:
        arrow_rows = (
            rows.select(schema.names) if isinstance(rows, pa.Table) else pa.table(arrays(table, rows), schema=schema)
        )
        for column in TABLES[table]:
            if not column.nullable and arrow_rows[column.name].null_count:
                raise StoreError(
                    f"table {table}: column {column.name} is null in {arrow_rows[column.name].null_count} rows, and "
                    "must not be null"
                )
        arrow_rows.validate(full=True)
        return arrow_rows.cast(schema)
    except KeyError as error:
        raise StoreError(f"table {table}: rows have no column {error}; see data/README.md") from error
    except MISFITS as error:
        raise Misfit(f"table {table}: rows don't fit its columns ({error}); see data/README.md") from error


def arrays(table: str, rows: Sequence[Any]) -> list[pa.Array]:
    values_of = columns(table, rows)
    return [to_array(values_of[column.name], column.type) for column in TABLES[table]]


def to_array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Convert a column. Lists of numbers, most of what is stored, by Python's own arrays: pyarrow looks at each number
    twice, the first time for its kind."""
    code = NUMBERS.get(type_.value_type) if pa.types.is_list(type_) else None
    if code is None:
        return pa.array(values, type_)
    numbers = array(code)
    try:
        for some in values:
            numbers.fromlist(some)
    except (TypeError, OverflowError):  # null, no list, or what only pyarrow converts; else its error names the value
        return pa.array(values, type_)
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.ListArray.from_arrays(ends, pa.array(np.frombuffer(numbers, f"{code}4")), type=type_)


def columns(table: str, rows: Sequence[Any]) -> dict[str, list[Any]]:
    names = [column.name for column in TABLES[table]]
    if rows and is_dataclass(rows[0]):
        if [field.name for field in fields(rows[0])] != names:
            raise StoreError(
                f"table {table}: got records of {type(rows[0]).__name__}, whose fields are not its columns"
            )
        return {name: [getattr(row, name) for row in rows] for name in names}
    return {name: [row[name] for row in rows] for name in names}


def encode(table: pa.Table) -> bytes:
    """Encode as Parquet with zstd. Token ids and their log-probs are BYTE_STREAM_SPLIT: the high bytes are nearly
    constant and cost next to nothing."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=ROW_GROUP, **write_settings(table.schema))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def write_settings(schema: pa.Schema) -> dict[str, Any]:
    """Choose the options for pyarrow's writers."""
    numbers = [
        field.name for field in schema if pa.types.is_list(field.type) and not pa.types.is_string(field.type.value_type)
    ]
    split = [f"{name}.list.element" for name in numbers]
    others = [field.name for field in schema if field.name not in numbers]
    return {
        "compression": "zstd",
        "use_dictionary": others,
        "column_encoding": dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
        "write_page_checksum": True,
        "store_schema": False,
    }


def decode(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Decode the rows of a part. Raise StoreError for bytes that are no Parquet file."""
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:  # `read_table` plans a scan of many files
            # threads for a small part take as long as the part itself
            return file.read(None if columns is None else list(columns), use_threads=len(content) > THREADS_FROM)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"not a readable Parquet file: {error}") from error


def footer(content: bytes) -> tuple[int, list[str]]:
    """Read (rows, names of the columns) of a part, without its rows. Raise StoreError for bytes that are no Parquet
    file."""
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            return file.metadata.num_rows, list(file.schema_arrow.names)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"not a readable Parquet file: {error}") from error


def only_value(path: str, column: str) -> str:
    """Find the one value that a column of text has in every row of a file, by the file's statistics; empty where it has
    several, or where they do not say."""
    values: set[str] = set()
    metadata = pq.read_metadata(path)
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        chunks = (group.column(number) for number in range(group.num_columns))
        statistics = next((chunk.statistics for chunk in chunks if chunk.path_in_schema == column), None)
        if statistics is None or not statistics.has_min_max:
            return ""
        values |= {statistics.min, statistics.max}
    return values.pop() if len(values) == 1 else ""
