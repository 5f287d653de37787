"""Free the space of old iterations: delete heavy columns or policies, keep rows and figures, and say what can no longer
be replayed."""

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import cast

import pyarrow as pa

from r3l.errors import StoreError
from r3l.store import manifest as manifests
from r3l.store.catalog import load_manifests
from r3l.store.figures import best_iteration
from r3l.store.files.local import Files
from r3l.store.layout import StageKey, line_folder
from r3l.store.manifest import Content, Manifest, ManifestPart
from r3l.store.query import require_runs
from r3l.store.stage import Store
from r3l.store.tables.columns import Drop
from r3l.store.tables.parts import decode, encode
from r3l.store.tables.schemas import TABLES, arrow_schema

LOST: dict[Drop, tuple[str, ...]] = {
    "logprobs": ("training rows of methods with an importance ratio or a KL term to the behaviour policy",),
    "tokens": (
        "reflections, retries and distilled from the stored bases",
        "training rows and updates",
        "the weight of single tokens",
    ),
    "all": (
        "everything after base from what is stored; base itself only with the policy of that iteration",
        "the words of any turn",
    ),
    "policies": (
        "what the next iteration sampled, with the policy that it sampled with",
        "the next update, from the weights it began with",
        "a branch that goes on from there",
        "an importance ratio of replayed groups to the policy that sampled them (S > 1)",
    ),
}


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was freed: iterations (run, branch, iteration), bytes of what was pruned before and after, what is lost."""

    iterations: list[tuple[str, str, int]]
    before: int
    after: int
    lost: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{run}{'/branch=' + branch if branch else ''} iteration {iteration}"
            for run, branch, iteration in self.iterations
        ]
        summary = f"{self.before - self.after:,} of {self.before:,} bytes given back"
        return "\n".join([summary, *lines, *(f"no longer replayable there: {what}" for what in self.lost if lines)])


def prune_run(store: Store, run: str, keep_last: int, drop: Drop = "all", needed: Collection[str] = ()) -> Pruned:
    """Empty the heavy columns of all but the newest `keep_last` iterations of the run and of each of its branches, or
    delete the policies that those wrote, with their optimiser state; that with the highest held-out success stays, and
    so do those at the places `needed`.

    A later reader of an emptied column gets a StoreError that says so. Raise StoreError where there is no such run or
    nothing could be kept, where a stage is damaged, or where an iteration is at work.
    """
    require_runs(store, [run])
    if keep_last < 1:
        raise StoreError(f"--keep-last {keep_last}: expected 1 or more; the run continues from its newest iteration")
    lines: dict[str, dict[int, list[Manifest]]] = {}
    for manifest in load_manifests(store, [run]):
        lines.setdefault(manifest["branch"], {}).setdefault(manifest["iteration"], []).append(manifest)
    iterations_pruned, before, after = [], 0, 0
    for branch, iterations in lines.items():
        best = best_iteration(store, run, branch) if drop == "policies" else None
        for iteration in sorted(iterations)[:-keep_last]:
            if iteration == best:
                continue
            folder = f"{line_folder(run, branch)}/policies/iteration={iteration:05d}"
            if drop == "policies" and f"{folder}/policy" in needed:
                continue
            with store.writer_lock(run, branch, iteration):
                if drop == "policies":
                    before += store.files.remove(folder)
                else:
                    for manifest in iterations[iteration]:
                        before += sum(part["bytes"] for part in manifest["parts"])
                        after += empty_stage(store.files, manifest, drop)
            iterations_pruned.append((run, branch, iteration))
    return Pruned(iterations_pruned, before, after, LOST[drop])


def empty_stage(files: Files, manifest: Manifest, drop: Drop) -> int:
    """Rewrite the parts that have columns which `drop` names, then the manifest, then delete the old parts. The result
    is the bytes left."""
    key = manifests.reference(manifest).key
    token = files.token(key.manifest)
    parts = [empty_columns(files, key, part, dropped_columns(part["table"], drop)) for part in manifest["parts"]]
    content = cast(Content, {name: value for name, value in manifest.items() if name != "checksum"} | {"parts": parts})
    if not files.put_if(key.manifest, manifests.seal(content), token):
        raise StoreError(f"stage {key}: another writer committed it meanwhile; run prune again")
    for old in {part["file"] for part in manifest["parts"]} - {part["file"] for part in parts}:
        files.delete(f"{key.folder}/{old}")
    return sum(part["bytes"] for part in parts)


def dropped_columns(table: str, drop: Drop) -> tuple[str, ...]:
    """List the columns of a table that pruning empties."""
    return tuple(column.name for column in TABLES[table] if column.dropped_by(drop))


def empty_columns(files: Files, key: StageKey, part: ManifestPart, names: tuple[str, ...]) -> ManifestPart:
    """Write a part without these columns' content; the result is its entry, whose digest stays that of the rows as they
    were made."""
    names_dropped = set(part.get("dropped", ()))
    if not part["rows"] or set(names) <= names_dropped:
        return part
    rows = decode(manifests.read_part(files, key, part))
    schema = pa.schema([arrow_schema(part["table"]).field(name) for name in rows.column_names])
    content = encode(
        pa.table({name: blank(rows[name]) if name in names else rows[name] for name in rows.column_names}).cast(schema)
    )
    digest = sha256(content).hexdigest()
    name = f"part-{part['table']}-{digest[:12]}.parquet"
    files.put(f"{key.folder}/{name}", content)
    return part | {"file": name, "bytes": len(content), "sha256": digest, "dropped": sorted(names_dropped | set(names))}


def blank(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([[] if pa.types.is_list(column.type) else ""] * len(column), column.type)
