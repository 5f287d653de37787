"""Processor seconds of commands that people wait for: `python -m tests.benchmarks.commands [FOLDER] [RUNS]
[ITERATIONS]` (200 runs of 2 iterations, and one run of 100; FOLDER keeps the two stores for another time).

Each command is a process of its own, its interpreter's start included. `first` makes the indexes; `then` is the
smallest of three later tries; `ratio` is that over `python -c "import duckdb"`, the smallest of tries in turn with the
command's.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.store_of_many import main as make_store

BASELINE = [sys.executable, "-c", "import duckdb"]
COMMAND = [sys.executable, "-m", "flows.cli.app"]
FRONT = """
import sys
from fastapi.testclient import TestClient
from r3l.audit.web.app import make_app
from r3l.store.stage import Store
app = make_app(Store.open(sys.argv[1], reading=True))
with TestClient(app, base_url="http://localhost") as client:
    assert client.get("/").status_code == 200
app.state.audit.close()
"""


def seconds(words: list[str], cache: str) -> float:
    """Of the processor, of a process and its children."""
    before = os.times()
    subprocess.run(words, check=True, capture_output=True, env=os.environ | {"R3L_CACHE": cache})
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def measured(name: str, words: list[str], cache: str) -> None:
    first = seconds(words, cache)
    pairs = [(seconds(BASELINE, cache), seconds(words, cache)) for _ in range(3)]
    baseline, then = (min(column) for column in zip(*pairs, strict=True))
    print(f"{name:<48} {first:6.2f} {then:6.2f} {then / baseline:6.1f}", flush=True)


def main(folder: str, runs: int = 200, iterations: int = 100) -> None:
    with tempfile.TemporaryDirectory() as cache:
        print(f"{'processor seconds of':<48} {'first':>6} {'then':>6} {'ratio':>6}")
        measured('python -c "import duckdb"', BASELINE, cache)
        measured("r3l --help", [*COMMAND, "--help"], cache)
        for name, made in (("many", (runs, 2)), ("long", (1, iterations))):
            store = f"{folder}/{name}"
            if not Path(store).exists():
                make_store(store, *made)
            told = f"{made[0]} runs" if name == "many" else f"{iterations} iterations"
            for question in ("select 1", "SELECT count(*) FROM stages", "SELECT count(*) FROM base"):
                measured(f'{told}: r3l sql "{question}"', [*COMMAND, "sql", question, "--store", store], cache)
            measured(f"{told}: r3l runs", [*COMMAND, "runs", "--store", store], cache)
            measured(f"{told}: r3l status", [*COMMAND, "status", "run000", "--store", store], cache)
            measured(f"{told}: front page of the audit", [sys.executable, "-c", FRONT, store], cache)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(*(sys.argv[1:2] or [temporary]), *map(int, sys.argv[2:]))
