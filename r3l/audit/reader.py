"""Read a growing store: one locked in-memory connection per state of the store, with a cursor per question."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from r3l.errors import StoreError
from r3l.store.catalog import build, names_needed, open_connection, tables_in
from r3l.store.index.bundles import bundled
from r3l.store.index.cached import index_path
from r3l.store.index.contents import Contents
from r3l.store.index.readable import gather, state_of
from r3l.store.index.scans import pattern_of
from r3l.store.query import lock
from r3l.store.stage import Store

LOOK_AGAIN_SECONDS = 3.0
KEPT = 8  # readers of one run, each with a connection
Row = dict[str, Any]


@dataclass
class Snapshot:
    """The store at one moment, and cached answers to costly questions."""

    state: str
    contents: Contents
    connection: duckdb.DuckDBPyConnection
    made: set[str] = field(default_factory=set)  # tables and views: each is made for the first question that reads it
    answers: dict[tuple[str, tuple[Any, ...]], list[Row]] = field(default_factory=dict)


class Reader:
    """Questions to the store's views. Safe to use from several threads; sees new stages within a few seconds."""

    def __init__(
        self,
        store: Store,
        runs: Sequence[str] | None = None,
        look_again: float = LOOK_AGAIN_SECONDS,
        newest: int | None = None,
        at: int | None = None,
        wide: bool = True,
    ) -> None:
        self.store = store
        self.runs = runs
        self.newest = newest  # how many iterations of each line are read, the newest ones; None: all
        self.at = at  # the only iteration that is read; None: all
        self.wide = wide  # every column of `stages` is read, and not only those that other views read
        self.look_again = look_again
        self._guard = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._looked = 0.0
        self._readers: OrderedDict[tuple[str, int | None], Reader] = OrderedDict()

    def of(self, run: str, at: int | None = None) -> Reader:
        """Find a reader of this run alone, `at` one iteration of it: in a store of many runs or iterations, connecting
        to one and asking it is many times as fast."""
        if self.runs is not None:
            return self
        at = self.at if at is None else at
        with self._guard:
            reader = self._readers.setdefault((run, at), Reader(self.store, [run], self.look_again, at=at))
            self._readers.move_to_end((run, at))
            oldest = self._readers.popitem(last=False)[1] if len(self._readers) > KEPT else None
        if oldest is not None:
            oldest.close()
        return reader

    def snapshot(self) -> Snapshot:
        """Give the present state, connected anew where a stage was committed since. Raise StoreError where the only run
        is damaged."""
        with self._guard:
            if self._snapshot is None or time.monotonic() - self._looked > self.look_again:
                seen = self._snapshot and state_of(self.store, self.runs, self.newest, self.at)
                if self._snapshot is None or self._snapshot.state != seen:
                    self._snapshot = self._connected()
                whole = not self._snapshot.connection.execute("FROM left_out").fetchall()
                self._looked = time.monotonic() if whole else 0.0  # a run that is mended is seen at once
            return self._snapshot

    def close(self) -> None:
        """Close the files. The next question connects again."""
        with self._guard:
            if self._snapshot is not None:
                self._snapshot.connection.close()
            self._snapshot = None
            readers, self._readers = self._readers, OrderedDict()
        for reader in readers.values():
            reader.close()

    def _connected(self) -> Snapshot:
        contents, left_out, state = gather(self.store, self.runs, newest=self.newest, at=self.at, wide=self.wide)
        connection = open_connection(self.store, Contents(), left_out=left_out, only=frozenset())
        bundles = index_path(self.store, "", "bundles").parent
        folders = [self.store.files.url(""), f"{bundles}/"]
        # as `open_connection` has files: DuckDB asks for a folder's name, and for the pattern of it
        connection.execute("SET allowed_directories = ?", [sorted({*folders, *map(pattern_of, folders)})])
        lock(connection)
        return Snapshot(state, contents, connection)

    def cursor(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Return a cursor that knows the tables and views of this SQL."""
        snapshot = self.snapshot()
        with self._guard:
            if only := names_needed(sql) - snapshot.made:
                contents = bundled(self.store, snapshot.contents, tables_in(only))
                build(snapshot.connection, contents, self.store.files.url(""), only=only)
                snapshot.made |= only
        return snapshot.connection.cursor()

    def left_out(self) -> dict[str, str]:
        """Return the runs of which answers leave something out, with what and why."""
        return {row["run"]: row["why"] for row in self.rows("FROM left_out")}

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Ask, and give the rows of the answer. A stage that was replaced meanwhile is looked up once more; raise
        StoreError where that fails."""
        for last in (False, True):
            try:
                with self.cursor(sql) as cursor:
                    cursor.execute(sql, dict(parameters) if isinstance(parameters, Mapping) else list(parameters))
                    names = [column[0] for column in cursor.description or ()]
                    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            except duckdb.IOException as error:
                if last:
                    raise StoreError(
                        f"store {self.store.root}: a stage can't be read ({error}); `r3l check` names the file"
                    ) from error
                self._snapshot = None
        return []

    def remembered(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Ask as `rows` does, once per state of the store: for costly questions with few rows."""
        answers = self.snapshot().answers
        key = (sql, tuple(parameters))
        if key not in answers:
            answers[key] = self.rows(sql, parameters)
        return answers[key]
