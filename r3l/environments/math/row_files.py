"""Rows of a user's file: JSON Lines or Parquet. What is no row is refused in one line that names its place."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r3l.environments.outside import value_and_type
from r3l.errors import WorldError
from r3l.system.visible import first_line

Row = Mapping[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file. Raise `WorldError` where it is neither kind of file, or a line of it is no JSON
    object."""
    if path.suffix == ".parquet":
        return parquet_rows(path)
    if path.suffix != ".jsonl":
        raise WorldError(f"{path.name}: expected a .jsonl or .parquet file")
    # Only \n ends a line: a JSON text may hold U+2028 and its like, at which `splitlines` would cut it in two.
    lines = decode_path(path).split("\n")
    return [row_of(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def decode_path(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise WorldError(
            f"{path.name}, line {line}: the byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error


def row_of(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WorldError(
            f"{path.name} is not a JSONL file: line {number}: {error}; expected one JSON object per line"
        ) from error
    if not isinstance(row, dict):
        raise WorldError(f"{path.name}, line {number}: expected a JSON object, got {value_and_type(row)}")
    return row


def parquet_rows(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[Row] = pq.read_table(path).to_pylist()
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        raise WorldError(f"{path.name} can't be read as Parquet: {first_line(error)}") from error
    return rows
