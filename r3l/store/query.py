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
        relation = connection.sql(sql, params=list(parameters))
        found = relation.to_arrow_table() if relation is not None else None
    except duckdb.Error as error:
        raise StoreError(f"this query can't be run: {error}") from error
    return pa.table({}) if found is None else found
