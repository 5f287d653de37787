"""The SQL box: one SELECT, read-only, in the locked connection, with limits on rows, cells and time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from r3l.audit.reader import Reader
from r3l.errors import StoreError
from r3l.store.query import one_select

ROWS, SECONDS = 1_000, 20.0
_SLOT = threading.BoundedSemaphore(2)
_WORKERS = ThreadPoolExecutor(2, thread_name_prefix="r3l-sql")


@dataclass(frozen=True, slots=True)
class Answer:
    """The first rows of an answer; `more`: there were others."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool
    seconds: float

    @property
    def numeric(self) -> list[bool]:
        """Of each column, whether its first value is a number: then its head stands to the right, too."""
        firsts = [next((row[k] for row in self.rows if row[k] is not None), None) for k in range(len(self.columns))]
        return [isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in firsts]


@dataclass(frozen=True, slots=True)
class Question:
    """A worked question: its name, what it asks (the comment at its top), and its SQL."""

    name: str
    asks: str
    sql: str


def ask(reader: Reader, query: str, rows: int = ROWS, seconds: float = SECONDS) -> Answer:
    """Run one SELECT. Raises StoreError for anything else, for what DuckDB says is wrong, and past the limits."""
    statement = one_select(query)
    if not _SLOT.acquire(blocking=False):
        raise StoreError("two queries are running already; wait for one to end")
    cursor = reader.cursor()
    begun = time.monotonic()
    job = _WORKERS.submit(fetch, cursor, statement, rows + 1)
    job.add_done_callback(lambda _: _SLOT.release())
    try:
        columns, found = job.result(timeout=seconds)
    except NotYet:
        with suppress(duckdb.ConnectionException):  # it ended just now
            cursor.interrupt()
        raise StoreError(f"stopped after {seconds:g} s; narrow it (WHERE iteration = ...), or use `r3l sql`, which waits longer") from None
    return Answer(columns, found[:rows], len(found) > rows, time.monotonic() - begun)


def fetch(cursor: duckdb.DuckDBPyConnection, statement: duckdb.Statement, rows: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and the first rows. In a read-only transaction: a SELECT may hold a DELETE in its WITH."""
    try:
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        relation = cursor.sql(statement)
        return list(relation.columns), relation.limit(rows).fetchall()
    except (duckdb.Error, RuntimeError, UnicodeDecodeError) as error:  # DuckDB may cut its message within a character
        raise StoreError(f"this query can't be run: {error}") from error
    finally:
        cursor.close()


def worked_questions(folder: Path) -> list[Question]:
    """The questions that ship with the repository: ``NN_name.sql``, the question as its first comment."""
    found = []
    for path in sorted(folder.glob("*.sql")) if folder.is_dir() else []:
        lines = path.read_text(encoding="utf-8").strip().splitlines()
        comment = [line for line in lines if line.startswith("--")]
        asks = " ".join(line.removeprefix("--").strip() for line in comment[:1]) or path.stem
        found.append(Question(path.stem, asks, "\n".join(line for line in lines if not line.startswith("--")).strip()))
    return found
