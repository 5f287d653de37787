"""Peak memory of the update against the length of the longest path: `python -m tests.benchmarks.update_memory`.

One group of two rows that share three quarters of their tokens, at a tiny width, each length in a process of its own.

    extra MB   peak resident memory above that of the loaded model
    slope      MB for each further 1,000 tokens of the path
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.update_layouts import make_decoder, resident

LENGTHS = (2048, 8192, 20480)


def two_rows(length: int) -> list[Any]:
    from tests.support.update_world import record, rows_of

    rng = np.random.default_rng(0)
    first = rng.integers(0, 2048, length)
    second = np.r_[first[: 3 * length // 4], rng.integers(0, 2048, length // 4)]
    weights = np.where(np.arange(length) % 8 < 2, 1 / length, 0.0)
    weights[0] = 0
    return rows_of([record("a", first, weights, advantage=1.0), record("b", second, weights, advantage=-0.5)])


def measure_length(length: int, width: int, recompute: bool) -> dict[str, Any]:
    import torch

    from r3l.training.gradients import RowScores, row_gradient
    from r3l.training.trie.layouts import Limits, TrieLayout

    torch.set_num_threads(1)
    decoder, rows = make_decoder(width), two_rows(length)
    gradients = [row_gradient(row, RowScores(np.zeros(len(row.positions))), 1.0) for row in rows]
    limits = Limits(65536, 256, segment_tokens=1024 if recompute else 0, recompute=recompute)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    started = time.process_time()
    TrieLayout().backward(decoder, rows, gradients, limits)
    return {"length": length, "seconds": time.process_time() - started, "extra MB": resident("VmHWM") - before}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, help="measure this one here and print JSON")
    parser.add_argument("--recompute", action="store_true")
    arguments = parser.parse_args()
    if arguments.length:
        print(json.dumps(measure_length(arguments.length, arguments.width, arguments.recompute)))
        return
    for recompute in (True, False):
        found = []
        for length in LENGTHS:
            command = [
                sys.executable,
                "-m",
                "tests.benchmarks.update_memory",
                "--length",
                str(length),
                "--width",
                str(arguments.width),
            ]
            done = subprocess.run(
                command + ["--recompute"] * recompute,
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            found.append(json.loads(done.stdout.splitlines()[-1]))
            print(
                f"checkpoint_segments={recompute}  {length:6} tokens {found[-1]['seconds']:5.1f} s extra "
                f"{found[-1]['extra MB']:6.0f} MB"
            )
        slope = (found[-1]["extra MB"] - found[0]["extra MB"]) / (LENGTHS[-1] - LENGTHS[0]) * 1000
        print(f"checkpoint_segments={recompute}  slope {slope:.1f} MB for 1,000 tokens")


if __name__ == "__main__":
    main()
