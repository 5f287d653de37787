"""What r3l's own work costs as it grows: tokens of an update, trajectories of an iteration, iterations of a run, runs
of a store. Processor seconds; each size is measured in processes of its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.commands import COMMAND, seconds
from tests.benchmarks.store_of_many import main as make_store
from tests.benchmarks.table.form import Growth
from tests.benchmarks.update_layouts import compared


def tokens(scales: Sequence[float], width: int) -> Growth:
    """One group of eight rows, as a trie, on one thread."""
    found = [compared(["trie"], 1, lengths="varied", width=width, scale=scale)["trie"] for scale in scales]
    what = "tokens of a group: processor s of its update"
    return Growth(what, [one["tokens"] for one in found], [one["seconds"] for one in found])


def trajectories(sizes: Sequence[int], per_shard: int) -> Growth:
    """A scripted policy and update: what is left is exploration, stages, store and Prefect."""
    found = []
    for size in sizes:
        words = [sys.executable, "-m", "tests.benchmarks.iteration_scale", str(size), str(per_shard)]
        said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        found.append(json.loads(said[said.index("{\n") :]))
    what = "trajectories of a scripted iteration with Prefect: processor s of its process"
    return Growth(what, [one["trajectories"] for one in found], [one["processor"] for one in found])


def of_commands(
    what: str, made: Mapping[int, tuple[int, int]], asked: Sequence[Sequence[str]], repeats: int
) -> Iterator[Growth]:
    """Commands over stores of (runs, iterations), the smallest of some tries after one that makes the indexes."""
    costs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size, (runs, iterations) in made.items():
            store, cache = f"{folder}/{size}", str(Path(folder) / "cache")
            make_store(store, runs, iterations)
            for words in asked:
                command = [*COMMAND, *words, "--store", store]
                tries = [seconds(command, cache) for _ in range(1 + repeats)]
                costs.setdefault(" ".join(words), []).append(min(tries[1:]))
    for words, found in costs.items():
        shown = f'sql "{words.removeprefix("sql ")}"' if words.startswith("sql ") else words.removesuffix(" run000")
        yield Growth(f"{what}: processor s of `r3l {shown}`", list(made), found)
