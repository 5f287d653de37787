"""Whole iterations in one process, and what of it grows: `python -m tests.support.iterations_in_one STORE ITERATIONS`.

The engine, the worlds' processes and the update's process are the real ones, on the smallest sizes. After each
iteration a line of JSON: resident megabytes, open files, threads and children of this process.
"""

import json
import os
import sys

import psutil

from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.pipeline.runner import Threads
from r3l.store.stage import Store
from tests.flows.small import small_config


def standing(iteration: int) -> dict[str, int]:
    me = psutil.Process()
    return {
        "iteration": iteration,
        "resident_mb": round(me.memory_info().rss / 2**20),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": me.num_threads(),
        "children": len(me.children(recursive=True)),
    }


def main(root: str, iterations: int) -> None:
    config, store = small_config(root), Store.open(root)
    for iteration in range(iterations):
        with open_iteration(config, store, iteration, runner=Threads()) as bench:
            run_stages(bench)
        print(json.dumps(standing(iteration)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
