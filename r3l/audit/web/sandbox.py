"""The SQL box: one SELECT, read-only, in a process of its own with limits on time and memory."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from r3l.errors import StoreError
from r3l.store.query import one_select
from r3l.store.stage import Store
from r3l.system.child_environment import importable
from r3l.system.line_process import LineProcess

ROWS, SECONDS, AT_ONCE = 1_000, 20.0, 2
# bytes that a question may take: DuckDB's own limit of 2 GB, and as much again for what it does not count
MEMORY = 3 << 30
NARROW = "narrow it (WHERE iteration = ...)"
CONNECT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The first rows of an answer; `more`: there were others; `left_out`: runs of which some stages are damaged."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool
    seconds: float
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def numeric(self) -> list[bool]:
        """Tell whether the first value of each column is a number; such a column has its head on the right."""
        firsts = [next((row[k] for row in self.rows if row[k] is not None), None) for k in range(len(self.columns))]
        return [isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in firsts]


@dataclass(frozen=True, slots=True)
class Question:
    """A worked question: its name, what it asks (the comment at its top), and its SQL."""

    name: str
    asks: str
    sql: str


class SqlBox:
    """Answers the questions of users about a store, `AT_ONCE` side by side. Processes start when they are needed, and
    stay."""

    def __init__(self, store: Store, runs: Sequence[str] | None = None, memory: int = MEMORY, branch: str = "") -> None:
        self.store, self.runs, self.memory, self.branch = store, runs, memory, branch
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._idle: list[Asked] = []

    def ask(self, query: str, rows: int = ROWS, seconds: float = SECONDS, whole: bool = False) -> Answer:
        """Run one SELECT; `whole` texts are not cut to a cell.

        Raises StoreError for anything else, for what DuckDB says is wrong, and past the limits."""
        one_select(query)
        if not self._slots.acquire(blocking=False):
            raise StoreError("two queries are running already; wait for one to end")
        process: Asked | None = None
        try:
            process = self._idling() or Asked(self.store.root, self.runs, self.memory, self.branch)
            return process.ask(query, rows, seconds, whole)
        finally:
            if process is not None and process.waits:
                self._idle.append(process)
            elif process is not None:  # it is at work yet, or has ended
                process.stop()
            self._slots.release()

    def _idling(self) -> Asked | None:
        """Find a process that waits for a question; one that was ended meanwhile, from outside, is let go."""
        while self._idle:
            asked = self._idle.pop()
            if not asked.ended:
                return asked
            asked.stop()
        return None

    def close(self) -> None:
        while self._idle:
            self._idle.pop().stop()


class Asked(LineProcess):
    """One process, ``python -m r3l.audit.web.sandbox_process``."""

    def __init__(self, root: str, runs: Sequence[str] | None, memory: int, branch: str = "") -> None:
        # where DuckDB puts what does not fit into memory: not the working folder
        self.folder = TemporaryDirectory(prefix="r3l-sql-")
        super().__init__(
            "r3l.audit.web.sandbox_process",
            root,
            json.dumps([runs, branch]),
            str(memory),
            environment={**importable(os.environ), "MALLOC_ARENA_MAX": "2"},
            folder=self.folder.name,
        )
        self.waits = True  # for a question

    def ask(self, query: str, rows: int, seconds: float, whole: bool = False) -> Answer:
        """Ask one question. The time that it takes to connect to the store is not the question's. Raise StoreError."""
        self.waits = False
        with suppress(BrokenPipeError):  # reading says that it ended
            self.send({"sql": query, "rows": rows, "seconds": seconds, "whole": whole})
        message = self._line(CONNECT_SECONDS, f"the store could not be connected to within {CONNECT_SECONDS:g} s")
        start_time = time.monotonic()
        if "error" not in message:
            message = self._line(
                seconds, f"stopped after {seconds:g} s; {NARROW}, or use `r3l sql`, which waits longer"
            )
        self.waits = True
        if "error" in message:
            raise StoreError(message["error"])
        cells = [
            tuple(Decimal(value[0]) if isinstance(value, list) else value for value in row) for row in message["rows"]
        ]
        seconds_taken = time.monotonic() - start_time
        return Answer(message["columns"], cells[:rows], len(cells) > rows, seconds_taken, message["left_out"])

    def _line(self, seconds: float, late: str) -> dict[str, Any]:
        """Read the next line. Raise StoreError with `late` where none comes in time, and where the process has
        ended."""
        try:
            message = self.receive(seconds)
        except EOFError:
            why = f"this query ended its process, most likely by the memory it took; {NARROW}"
            raise StoreError(why) from None
        if message is None:
            raise StoreError(late)
        return message

    def stop(self) -> None:
        super().stop()
        self.folder.cleanup()


def worked_questions(folder: Path) -> list[Question]:
    """Read the questions that ship with the repository: ``NN_name.sql``, the question as its first comment."""
    questions = []
    for path in sorted(folder.glob("*.sql")) if folder.is_dir() else []:
        lines = path.read_text(encoding="utf-8").strip().splitlines()
        comment = [line for line in lines if line.startswith("--")]
        asks = " ".join(line.removeprefix("--").strip() for line in comment[:1]) or path.stem
        questions.append(
            Question(path.stem, asks, "\n".join(line for line in lines if not line.startswith("--")).strip())
        )
    return questions
