"""A copy of the real run that ships, with a defect planted: committed anew, so that every hash and digest of the copy
is in order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from r3l.stages import STAGES
from r3l.store.catalog import load_manifests
from r3l.store.layout import StageKey, StageRef
from r3l.store.manifest import reference
from r3l.store.stage import Store

SHIPPED = Path(__file__).parents[2] / "data" / "sample_run"
Row = dict[str, Any]
Tables = dict[str, list[Row]]
Defect = Callable[[dict[str, Tables]], None]


def planted(root: Path, defect: Defect = lambda stages: None) -> Store:
    """Iteration 0 of the shipped run in a new store, its rows changed by `defect`, which gets them by stage and
    table."""
    shipped, copy = Store.open(str(SHIPPED)), Store.open(str(root))
    manifests = [
        one
        for one in load_manifests(shipped, ["sample"])
        if (one["branch"], one["iteration"]) == ("", 0) and one["stage"] != "evaluations"
    ]
    shards = [
        (
            one,
            {
                table: shipped.read(reference(one), table).to_pylist()
                for table in (*STAGES[one["stage"]].tables, "events")
            },
        )
        for one in manifests
    ]
    stages: dict[str, Tables] = {}
    for manifest, tables in shards:  # one list over all shards; each row knows its own
        for table, rows in tables.items():
            stages.setdefault(manifest["stage"], {}).setdefault(table, []).extend(
                row | {"_shard": manifest["shard"]} for row in rows
            )
    defect(stages)
    refs: dict[StageKey, StageRef] = {}
    for manifest, tables in shards:
        key, stage = reference(manifest).key, stages[manifest["stage"]]
        mine = {table: [row for row in stage[table] if row["_shard"] == manifest["shard"]] for table in tables}
        refs[key] = copy.commit(
            key, mine, fingerprint=manifest["fingerprint"], settings=manifest["settings"], policy=manifest["policy"],
            parents=[refs[StageRef(**parent).key] for parent in manifest["parents"]], seed=manifest["seed"],
        )  # fmt: skip
    return copy
