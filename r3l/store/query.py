"""Asking a catalog connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from r3l.errors import StoreError


def query(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any] = ()) -> pa.Table:
    """The result of one statement. Raises `StoreError` with DuckDB's own words where it can't be run."""
    try:
        found = connection.execute(sql, list(parameters)).to_arrow_table()
    except duckdb.Error as error:
        raise StoreError(f"this query can't be run: {error}") from error
    return found if found is not None else pa.table({})
