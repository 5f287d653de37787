"""A store of many runs, or of one long run, made from the run that ships: `python -m tests.benchmarks.store_of_many
ROOT [RUNS] [ITERATIONS] [SOURCE]`; then ask it: `R3L_CACHE=... r3l sql|runs|check|audit`.

Iterations 0 and 1 of the shipped run (or of the run `demo` in another store, SOURCE: two of `r3l iterate` have 39 files
each), again and again under new numbers: every id, manifest and hash is in order, so that `r3l check` finds nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from r3l.stages import STAGES
from r3l.store.catalog import load_manifests
from r3l.store.files.local import Files
from r3l.store.layout import StageKey, StageRef, key_of
from r3l.store.manifest import load, reference, seal
from r3l.store.stage import Store
from tests.support.planted import SHIPPED


def renumbered(table: pa.Table, old: int, new: int) -> pa.Table:
    """The rows of another iteration: its number, and the ids that begin with it."""
    for place, name in enumerate(table.column_names):
        column = table[name]
        if name == "iteration":
            column = pa.array([new] * table.num_rows, column.type)
        elif pa.types.is_string(column.type) and name.endswith("_id"):
            column = pc.replace_substring(column, f"iteration={old}/", f"iteration={new}/")
        table = table.set_column(place, table.schema.field(name), column)
    return table


def main(root: str, runs: int = 1, iterations: int = 2, source: str = "") -> None:
    os.fsync = lambda _: None  # what is thrown away need not outlast a power cut
    shipped, store = Store.open(source or str(SHIPPED), reading=True), Store.open(root)
    made = load_manifests(shipped, ["demo" if source else "sample"])
    manifests = [one for one in made if one["branch"] == "" and one["stage"] != "evaluations"]
    stages = [
        (one, {table: shipped.read(reference(one), table) for table in (*STAGES[one["stage"]].tables, "events")})
        for one in manifests
    ]
    refs: dict[StageKey, StageRef] = {}
    for number in range(iterations):
        for one, tables in stages:
            old = one["iteration"]
            if old != number % 2:
                continue
            key = StageKey("run000", "", number, one["stage"], one["shard"])
            parents = [StageRef(**parent).key for parent in one["parents"]]
            refs[key] = store.commit(
                key,
                {table: renumbered(rows, old, number) for table, rows in tables.items()},
                fingerprint=one["fingerprint"],
                parents=[refs[StageKey(key.run, "", number, parent.stage, parent.shard)] for parent in parents],
                settings=one["settings"],
                policy=one["policy"],
                seed=one["seed"],
            )
    for run in range(1, runs):
        name_again(store.files, "run000", f"run{run:03d}")


def name_again(files: Files, run: str, other: str) -> None:
    """Write a run under another name: no part of it says its name, so that they are links to the first run's."""
    for path in files.paths(run):
        target = Path(files.url(path.replace(run, other, 1)))
        target.parent.mkdir(parents=True, exist_ok=True)
        key = key_of(path)
        if key and (manifest := load(files, key)):
            fields = {name: value for name, value in manifest.items() if name != "checksum"}
            parents = [parent | {"run": other} for parent in manifest["parents"]]
            target.write_bytes(seal({**fields, "run": other, "parents": parents}))
        else:
            os.link(files.url(path), target)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]), *sys.argv[4:])
