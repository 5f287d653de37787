"""Other ways to keep a shard of turns, each as durable as a commit of r3l: JSON lines, pickle, SQLite."""

import json
import os
import pickle
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from r3l.store.layout import StageKey
from r3l.store.stage import Store

Rows = list[dict[str, Any]]


def durable(path: Path, content: bytes | Iterator[bytes]) -> None:
    """Write a file as a commit of r3l does: aside, to the disk, to its name, the folder to the disk."""
    with (aside := path.with_suffix(".part")).open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def put_jsonl(path: Path, rows: Rows) -> None:
    durable(path, (json.dumps(row).encode() + b"\n" for row in rows))


def put_pickle(path: Path, rows: Rows) -> None:
    durable(path, pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))


def flat(value: Any) -> Any:
    """Numbers of a list as an array of 4 bytes each, its texts as JSON."""
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], str):
        return json.dumps(value)
    return np.array(value, np.int32 if value and isinstance(value[0], int) else np.float32).tobytes()


def put_sqlite(path: Path, tables: Mapping[str, Rows]) -> None:
    """In one transaction. SQLite's default is to wait for the disk."""
    with closing(sqlite3.connect(path)) as lite, lite:
        for table, rows in tables.items():
            lite.execute(f"CREATE TABLE {table} ({', '.join(rows[0])})")
            marks = ", ".join("?" * len(rows[0]))
            lite.executemany(f"INSERT INTO {table} VALUES ({marks})", ([*map(flat, row.values())] for row in rows))


def commits(folder: Path, turns: Rows) -> dict[str, Callable[[], tuple[float, int]]]:
    """Each side commits the shard anew: seconds on the clock, for a commit waits for the disk, and bytes."""
    store, count = Store.open(str(folder / "r3l")), iter(range(1000))

    def side(put: Callable[[Path], object]) -> Callable[[], tuple[float, int]]:
        def commit() -> tuple[float, int]:
            path = folder / f"shard{next(count)}"
            began = time.perf_counter()
            put(path)
            return time.perf_counter() - began, path.stat().st_size

        return commit

    def ours() -> tuple[float, int]:
        key = StageKey("bench", "", next(count), "base", 0)
        began = time.perf_counter()
        store.commit(key, {"turns": turns}, fingerprint="f")
        seconds = time.perf_counter() - began
        return seconds, sum(
            size for path, size in store.files.sizes("").items() if f"iteration={key.iteration:05d}" in path
        )

    return {
        "r3l": ours,
        "JSON lines": side(lambda path: put_jsonl(path, turns)),
        "pickle": side(lambda path: put_pickle(path, turns)),
        "SQLite": side(lambda path: put_sqlite(path, {"turns": turns})),
    }
