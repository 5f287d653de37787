"""Bytes per token of id columns by encoding, and the time of a commit of 250,000 tokens.

    python -m tests.benchmarks.store_encoding

Ids of a real text (Python's own library, under a 32,000-word BPE made from it), and, as the hard case, ids drawn as
words are (Zipf over a shuffled vocabulary), each independent of the last, so that zstd finds nothing but what the
encoding shows it. Replies have 20 to 200 tokens.
"""

import gzip
import json
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from r3l.store.layout import StageKey
from r3l.store.stage import Store
from r3l.store.tables.parts import encode

TOKENS = 250_000


def real_text() -> np.ndarray:
    """250,000 ids of the standard library's sources, with a vocabulary of 32,000 learned on 5 MB of it."""
    text = "".join(path.read_text(errors="ignore") for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))[
        :5_000_000
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=32_000, show_progress=False))
    return np.array(tokenizer.encode(text).ids[:TOKENS], np.int32)


def drawn(vocabulary: int, seed: int = 0) -> np.ndarray:
    chance = np.random.default_rng(seed)
    ranks = np.arange(1, vocabulary + 1) ** -1.0
    return chance.permutation(vocabulary).astype(np.int32)[chance.choice(vocabulary, TOKENS, p=ranks / ranks.sum())]


def replies(ids: np.ndarray) -> list[np.ndarray]:
    """Cut into replies of 20 to 200 tokens."""
    return np.split(ids, np.cumsum(np.random.default_rng(0).integers(20, 200, 4000))[: TOKENS // 115])


def parquet(table: pa.Table, **settings: object) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **settings)
    return len(sink.getvalue())


def sizes(ids: list[np.ndarray]) -> dict[str, float]:
    """Bytes per token of one id column."""
    table = pa.table({"ids": pa.array([one.tolist() for one in ids], pa.list_(pa.int32()))})
    lines = "\n".join(json.dumps({"ids": one.tolist()}) for one in ids).encode()
    delta = {"ids.list.element": "DELTA_BINARY_PACKED"}
    ways: dict[str, Callable[[], int]] = {
        "byte stream split + zstd (ours)": lambda: len(encode(table)),
        "plain + zstd": lambda: parquet(table, compression="zstd", use_dictionary=False),
        "dictionary + zstd": lambda: parquet(table, compression="zstd"),
        "delta + zstd": lambda: parquet(table, compression="zstd", use_dictionary=False, column_encoding=delta),
        "dictionary + snappy (pyarrow's default)": lambda: parquet(table),
        "JSON lines": lambda: len(lines),
        "JSON lines + gzip": lambda: len(gzip.compress(lines)),
    }
    tokens = sum(map(len, ids))
    return {name: way() / tokens for name, way in ways.items()}


def turn_rows(ids: list[np.ndarray]) -> list[dict]:
    """Turns with a reply and as long an observation each: half of the tokens are sampled."""
    rows = []
    for index in range(0, len(ids) - 1, 2):
        context, reply = ids[index].tolist(), ids[index + 1].tolist()
        trajectory, turn = divmod(index // 2, 25)
        rows.append(
            {
                "trajectory_id": f"iteration=0/task={trajectory // 4}/base={trajectory % 4}", "iteration": 0,
                "turn": turn, "observation": "You see. " * 20, "context_ids": context, "response_ids": reply,
                "response": "go to the desk " * 20,
                "response_logprobs": np.log(np.linspace(0.01, 1, len(reply))).tolist(), "action": "go", "valid": True,
                "finish_reason": "stop", "observation_hash": f"{index:016x}", "progress": turn / 25, "reward": None,
            }
        )  # fmt: skip
    return rows


def commit_seconds(ids: list[np.ndarray], repeats: int = 9) -> list[float]:
    """Records in memory to a manifest on disk, fsync included."""
    rows = turn_rows(ids)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        for number in range(repeats):
            began = time.perf_counter()
            store.commit(StageKey("bench", "", number, "base", 0), {"turns": rows}, fingerprint="f")
            seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    for source, ids in {
        "text, 32,000": real_text(),
        "drawn, 32,000": drawn(32_000),
        "drawn, 151,000": drawn(151_000),
    }.items():
        for name, size in sizes(replies(ids)).items():
            print(f"{source:<15} {name:<42} {size:6.3f} bytes per token")
        seconds = commit_seconds(replies(ids))
        print(
            f"{source:<15} commit of {len(ids):,} tokens: median {statistics.median(seconds) * 1e3:.0f} ms, "
            f"best {min(seconds) * 1e3:.0f} ms, worst {max(seconds) * 1e3:.0f} ms (half of them sampled, with "
            "log-probs)"
        )


if __name__ == "__main__":
    main()
