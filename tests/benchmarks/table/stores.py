"""Other ways to keep a shard of turns, each as durable as a commit of r3l: JSON lines, pickle, SQLite, and a buffer as
Trinity-RFT has it.

That is its `SQLExperienceStorage`: a row per experience with the pickled object, whose tokens are tensors, beside
prompt, response, messages, reward and a count of reads. Here it goes without SQLAlchemy, which would cost it time.
"""

import json
import os
import pickle
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from r3l.store.layout import StageKey
from r3l.store.stage import Store

Rows = list[dict[str, Any]]
EXPERIENCES = """
CREATE TABLE experiences (id INTEGER PRIMARY KEY AUTOINCREMENT, prompt TEXT, response TEXT, message_list JSON,
    reward FLOAT, model_version INTEGER, experience_bytes BLOB, consumed INTEGER);
CREATE INDEX ix_experiences_consumed ON experiences (consumed);
"""


@dataclass
class Experience:
    """The fields of Trinity's that a trajectory of several turns has."""

    eid: dict[str, int]
    tokens: torch.Tensor
    logprobs: torch.Tensor
    action_mask: torch.Tensor
    prompt_length: int
    reward: float
    messages: list[dict[str, str]]
    advantages: torch.Tensor | None = None
    info: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def experience(turns: Rows, /, **info: Any) -> Experience:
    """One of a trajectory: its turns' contexts and replies in a row."""
    pairs = [(turn["context_ids"], turn["response_ids"], turn["response_logprobs"]) for turn in turns]
    mask = [sampled for context, reply, _ in pairs for sampled in (*[False] * len(context), *[True] * len(reply))]
    opening = len(pairs[0][0])
    return Experience(
        {"batch": turns[0]["iteration"], "task": 0, "run": 0, "step": 0},
        torch.tensor([token for context, reply, _ in pairs for token in (*context, *reply)], dtype=torch.int32),
        torch.tensor(
            [x for context, _, probs in pairs for x in (*[0.0] * len(context), *probs)][opening:], dtype=torch.float32
        ),
        torch.tensor(mask[opening:], dtype=torch.bool),
        opening,
        float(info.get("reward") or 0.0),
        [
            message
            for turn in turns
            for message in (
                {"role": "user", "content": turn["observation"]},
                {"role": "assistant", "content": turn["response"]},
            )
        ],
        info={"model_version": turns[0]["iteration"], **info},
    )


def experiences(turns: Rows) -> list[Experience]:
    """Of a shard; what a turn has beside ids and text goes to `info`."""
    return [
        experience(own, turns=[{name: turn[name] for name in ("action", "valid", "finish_reason")} for turn in own])
        for own in (list(group) for _, group in groupby(turns, lambda turn: turn["trajectory_id"]))
    ]


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


def put_experiences(path: Path, ones: Sequence[Experience]) -> None:
    with closing(sqlite3.connect(path)) as lite, lite:
        lite.executescript(EXPERIENCES)
        lite.executemany(
            "INSERT INTO experiences VALUES (NULL, NULL, NULL, ?, ?, ?, ?, 0)",
            ((json.dumps(one.messages), one.reward, one.info["model_version"], pickle.dumps(one)) for one in ones),
        )


def read_experiences(path: Path) -> list[Experience]:
    with closing(sqlite3.connect(path)) as lite:
        return [pickle.loads(found) for (found,) in lite.execute("SELECT experience_bytes FROM experiences")]  # noqa: S301


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
        "Trinity": side(lambda path: put_experiences(path, experiences(turns))),
    }
