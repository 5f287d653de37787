"""Answers to questions in SQL, as rows."""

from typing import Any

from r3l.store.catalog import connect
from r3l.store.query import query
from r3l.store.stage import Store


def ask(store: Store, sql: str, *, run: str = "") -> list[dict[str, Any]]:
    """Return the rows, over all runs or one. Only the views that the question needs are made: all take half a
    second."""
    with connect(store, [run] if run else None, question=sql) as connection:
        return query(connection, sql).to_pylist()
