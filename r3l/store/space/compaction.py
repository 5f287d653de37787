"""Make bundles of finished iterations, and compare bundles with the stages that they copy."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq

from r3l.errors import StoreError
from r3l.store import manifest as manifests
from r3l.store.digests import canonical
from r3l.store.files.local import Files
from r3l.store.files.parts import ROW_GROUP, decode, write_settings
from r3l.store.layout import line_folder
from r3l.store.manifest import Manifest
from r3l.store.space.bundles import FOLDER, INDEX, Bundle, BundleFile, load_bundle, load_bundles
from r3l.store.stage import Store
from r3l.store.tables.schemas import VERSIONS, arrow_schema
from r3l.store.tables.versions import upgraded

ITERATIONS = 16


def compact(store: Store, run: str, iterations: int = ITERATIONS) -> list[str]:
    """Bundle the finished iterations of a run and its branches, so many at a time. Return the new bundles' folders.

    It takes as much space again as the tables that it bundles. Raise StoreError for a damaged stage.
    """
    made = []
    for branch in ("", *store.branches(run)):
        done: dict[int, list[Manifest]] = {}
        for ref in store.stages(run, branch):
            done.setdefault(ref.iteration, []).append(store.manifest(ref))
        covered = {
            iteration
            for bundle in load_bundles(store.files, line_folder(run, branch))
            for iteration in bundle.iterations
        }
        finished = [number for number, shards in sorted(done.items()) if number not in covered and complete(shards)]
        for first in range(0, len(finished) - iterations + 1, iterations):
            chosen = finished[first : first + iterations]
            shards = [manifest for number in chosen for manifest in done[number]]
            made.append(
                bundle_up(store.files, f"{line_folder(run, branch)}/{FOLDER}/{chosen[0]:05d}-{chosen[-1]:05d}", shards)
            )
    return made


def complete(shards: Sequence[Manifest]) -> bool:
    return any(manifest["stage"] == "updates" for manifest in shards)


def bundle_up(files: Files, folder: str, shards: Sequence[Manifest]) -> str:
    """Write one file per stage and table, then the index, if the stages still are what was read."""
    kinds = dict.fromkeys(
        (manifest["stage"], part["table"]) for manifest in shards for part in manifest["parts"] if part["rows"]
    )
    entries = [bundle_file(files, folder, stage, table, shards) for stage, table in kinds]
    if any(manifests.load(files, manifests.reference(manifest).key) != manifest for manifest in shards):
        raise StoreError(f"{folder}: a stage was committed while it was bundled; run compact again")
    content = {"versions": VERSIONS, "manifests": list(shards), "files": entries}
    files.put(f"{folder}/{INDEX}", json.dumps(content | {"checksum": sha256(canonical(content)).hexdigest()}).encode())
    return folder


def bundle_file(files: Files, folder: str, stage: str, table: str, shards: Sequence[Manifest]) -> BundleFile:
    """Return all rows of one table of one stage, in the present version, with their shard beside them."""
    schema = arrow_schema(table).append(pa.field("shard", pa.int32()))
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, **write_settings(schema)) as writer:
        waiting: list[pa.Table] = []
        for rows in rows_of_parts(files, stage, table, shards):
            waiting.append(rows.cast(schema))
            if sum(piece.num_rows for piece in waiting) >= ROW_GROUP:
                writer.write_table(pa.concat_tables(waiting), row_group_size=ROW_GROUP)
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=ROW_GROUP)
    written = sink.getvalue()
    digest = sha256(written).hexdigest()
    name = f"{stage}-{table}-{digest[:12]}.parquet"
    files.put(f"{folder}/{name}", written)
    return {"stage": stage, "table": table, "file": name, "bytes": len(written), "sha256": digest}


def rows_of_parts(files: Files, stage: str, table: str, shards: Sequence[Manifest]) -> Iterator[pa.Table]:
    """Yield the verified rows of each part, in the present version, with their shard."""
    for manifest in shards:
        for part in manifest["parts"]:
            if (manifest["stage"], part["table"]) == (stage, table):
                content = manifests.read_part(files, manifests.reference(manifest).key, part)
                rows = upgraded(decode(content), table, manifest["schema_version"])
                yield rows.append_column("shard", pa.repeat(pa.scalar(manifest["shard"], pa.int32()), rows.num_rows))


def damaged_bundles(store: Store, run: str) -> Iterator[tuple[str, str]]:
    """Yield (folder, what) for each bundle that differs from its stages."""
    for branch in ("", *store.branches(run)):
        line = line_folder(run, branch)
        for name in store.files.folders(f"{line}/{FOLDER}"):
            folder = f"{line}/{FOLDER}/{name}"
            try:
                yield from ((folder, what) for what in differences(store.files, load_bundle(store.files, folder)))
            except (StoreError, ValueError, KeyError, TypeError) as error:
                yield folder, f"{error}; delete the folder and run compact again"


def differences(files: Files, bundle: Bundle | None) -> Iterator[str]:
    for manifest in bundle.manifests if bundle else ():
        key = manifests.reference(manifest).key
        if manifests.load(files, key) != manifest:
            yield f"stage {key} is another since; delete the folder and run compact again"
    for entry in bundle.files if bundle else ():
        content = files.read(f"{bundle.folder}/{entry['file']}") if bundle else None
        if content is None or sha256(content).hexdigest() != entry["sha256"]:
            yield f"{entry['file']}: its content changed after it was written; delete the folder and run compact again"
