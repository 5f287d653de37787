"""Views over exactly the files that manifests name, in a DuckDB connection of its own: nothing is shared, nothing is stale.

Schema `main` has the tables as they are stored, one row for every row of a file, whatever branch wrote it. Schema `lines` has
them as each branch sees them: what it did not make itself, it has from the run. The views of views/*.sql are over `lines`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import Any

import duckdb
import pyarrow as pa

from r3l.store import manifest as manifests
from r3l.store.bundles import Bundle, load_bundles
from r3l.store.layout import key_of, line_folder
from r3l.store.lines import ORDER, inherited
from r3l.store.schemas import PLACE, TABLES, VERSIONS
from r3l.store.stage import Store
from r3l.store.versions import select_list

# Each view may use those before it.
VIEWS = ("base", "retries", "distilled", "pivots", "groups", "account", "dominance", "confusion", "diagnoses", "pivot_accuracy",
         "iterations", "genealogy")
MACROS = "credit_macros"
# Which stages' files the views of one kind of trajectory read: an extra base is sampled in place of a retry.
TRAJECTORIES_OF = {"base_trajectories": ("base", "retries"), "retry_trajectories": ("retries",), "distilled_trajectories": ("distilled",)}
STAGES_SCHEMA = pa.schema(
    [("run", pa.string()), ("branch", pa.string()), ("iteration", pa.int32()), ("stage", pa.string()), ("shard", pa.int32()),
     ("rows", pa.int64()), ("bytes", pa.int64()), ("seconds", pa.float64()), ("fingerprint", pa.string()), ("digest", pa.string()),
     ("schema_version", pa.int32()), ("code_version", pa.string()), ("policy", pa.string()), ("seed", pa.int64()),
     ("settings", pa.string()), ("metrics", pa.string()), ("parents", pa.list_(pa.string())), ("pruned", pa.list_(pa.string())),
     ("committed_at", pa.string())]
)  # fmt: skip


def connect(store: Store, runs: Sequence[str] | None = None) -> duckdb.DuckDBPyConnection:
    """An in-memory connection with every view over these runs (None: all). Raises StoreError for a damaged manifest."""
    named = store.files.folders("") if runs is None else runs
    lines = [line_folder(run, branch) for run in named for branch in ("", *store.branches(run))]
    bundles = [bundle for line in lines for bundle in load_bundles(store.files, line)]
    covered = {f"{bundle.line}/iteration={iteration:05d}" for bundle in bundles for iteration in bundle.iterations}
    loose = [f"{line}/{name}" for line in lines for name in store.files.folders(line) if name.startswith("iteration=")]
    return connect_to(store, list(load_all(store, [folder for folder in loose if folder not in covered])), bundles)


def connect_to(store: Store, found: Sequence[dict[str, Any]], bundles: Sequence[Bundle] = ()) -> duckdb.DuckDBPyConnection:
    """The same over the stages of these manifests, and of these bundles."""
    everything = [*found, *(manifest for bundle in bundles for manifest in bundle.manifests)]
    own = [part for manifest in found for part in parts_of(store, manifest)]
    own += [part for bundle in bundles for part in bundle_parts(store, bundle)]
    taken_over = [part for branch, manifest in inherited(everything) for part in parts_of(store, manifest, quoted(branch))]
    connection = duckdb.connect()
    store.files.attach(connection)
    rows = pa.Table.from_pylist([stage_row(manifest) for manifest in sorted(everything, key=place)], STAGES_SCHEMA)
    build(connection, rows, table_views(own, taken_over))
    connection.execute("CREATE TABLE files AS SELECT DISTINCT unnest(?::VARCHAR[]) AS path", [[part.url for part in (*own, *taken_over)]])
    return connection


def build(connection: duckdb.DuckDBPyConnection, stages: pa.Table, views: Sequence[str]) -> None:
    """Everything that the dictionary names, in a fresh connection."""
    connection.register("stages_rows", stages)
    connection.execute("CREATE TABLE stages AS FROM stages_rows; DROP VIEW stages_rows; CREATE SCHEMA lines")
    for statement in (*views, *map(view_sql, (*VIEWS, MACROS))):
        connection.execute(statement)


def view_sql(view: str) -> str:
    return package_files("r3l.store").joinpath("views", f"{view}.sql").read_text(encoding="utf-8")


def committed(store: Store, runs: Sequence[str]) -> list[dict[str, Any]]:
    """The manifests of these runs as their stages have them, in the order of the pipeline."""
    return sorted(load_all(store, runs), key=place)


def load_all(store: Store, folders: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every manifest under these folders."""
    for folder in folders:
        for path in store.files.paths(folder):
            if (key := key_of(path)) and (manifest := manifests.load(store.files, key)):
                yield manifest


def place(manifest: dict[str, Any]) -> tuple[str, str, int, int, int]:
    shard = -1 if manifest["shard"] is None else manifest["shard"]
    return manifest["run"], manifest["branch"], manifest["iteration"], ORDER[manifest["stage"]], shard


@dataclass(frozen=True, slots=True)
class Part:
    """One file of one table, as one branch sees it. `run`, `branch` and `shard` are the SQL that says of which a row is."""

    run: str
    branch: str
    shard: str
    version: int
    stage: str
    table: str
    url: str


def parts_of(store: Store, manifest: dict[str, Any], seen_by: str = "") -> list[Part]:
    """The files of a stage that have rows: as the branch has them that made them, or as `seen_by` has them."""
    folder = manifests.reference(manifest).key.folder
    run, branch = line_of_path(store)
    shard = "NULL::INTEGER" if manifest["shard"] is None else SHARD
    return [Part(run, seen_by or branch, shard, manifest["schema_version"], manifest["stage"], part["table"],
                 store.files.url(f"{folder}/{part['file']}"))
            for part in manifest["parts"] if part["rows"]]  # fmt: skip


def bundle_parts(store: Store, bundle: Bundle) -> list[Part]:
    """The files of a bundle: rows of the present version, with their shard."""
    run, branch = line_of_path(store)
    return [Part(run, branch, "shard", VERSIONS[entry["stage"]], entry["stage"], entry["table"],
                 store.files.url(f"{bundle.folder}/{entry['file']}"))
            for entry in bundle.files]  # fmt: skip


def line_of_path(store: Store) -> tuple[str, str]:
    """SQL for a file's run and branch, of its name alone: a question about one run then opens no file of another."""
    below = store.files.url("").count("/") + 1
    name = f"split_part(filename, '/', {below + 1})"
    return f"split_part(filename, '/', {below})", f"CASE WHEN starts_with({name}, 'branch=') THEN substr({name}, 8) ELSE '' END"


def stage_row(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest as a row of the view `stages`."""
    row = {name: manifest.get(name) for name in STAGES_SCHEMA.names}
    return row | {
        "rows": sum(part["rows"] for part in manifest["parts"]),
        "bytes": sum(part["bytes"] for part in manifest["parts"]),
        "seconds": manifest["metrics"].get("seconds"),
        "settings": json.dumps(manifest["settings"], sort_keys=True),
        "metrics": json.dumps(manifest["metrics"], sort_keys=True),
        "parents": [parent["fingerprint"] for parent in manifest["parents"]],
        "pruned": [f"{part['table']}.{column}" for part in manifest["parts"] for column in part.get("dropped", ())],
    }


def table_views(own: Sequence[Part], taken_over: Sequence[Part]) -> list[str]:
    """CREATE VIEW for each table: in `main` its own rows, in `lines` those that branches took over as well."""
    seen = [*own, *taken_over]
    views = {f"{schema}.{table}": (table, [part for part in parts if part.table == table])
             for schema, parts in (("main", own), ("lines", seen)) for table in TABLES}  # fmt: skip
    for name, stages in TRAJECTORIES_OF.items():
        views[f"lines.{name}"] = ("trajectories", [part for part in seen if part.table == "trajectories" and part.stage in stages])
    return [f"CREATE VIEW {name} AS {union(table, parts)}" for name, (table, parts) in views.items()]


def union(table: str, parts: Sequence[Part]) -> str:
    """The rows of these files with their place. In few scans: each opens its first file before the query begins and all are open at
    once, while the files of one scan are opened one after another.
    """
    if not parts:
        empty = ", ".join(f'NULL::{duck_type(column.type)} AS "{column.name}"' for column in (*PLACE, *TABLES[table]))
        return f"SELECT {empty} WHERE false"
    scans: dict[tuple[str, str, str, int], list[str]] = {}
    for part in parts:
        scans.setdefault((part.run, part.branch, part.shard, part.version), []).append(part.url)
    return " UNION ALL ".join(scan(table, *place, urls) for place, urls in scans.items())


def scan(table: str, run: str, branch: str, shard: str, version: int, urls: Sequence[str]) -> str:
    columns = select_list(table, version)
    files = f"read_parquet([{', '.join(map(quoted, urls))}], filename = true, hive_partitioning = false)"
    return f"SELECT {run} AS run, {branch} AS branch, {shard} AS shard, {columns} FROM {files}"


SHARD = "regexp_extract(filename, '/shard=([0-9]+)/', 1)::INTEGER"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def duck_type(type_: pa.DataType) -> str:
    """The DuckDB name of a column's type."""
    if pa.types.is_list(type_):
        return f"{duck_type(type_.value_type)}[]"
    names = {"string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "bool": "BOOLEAN"}
    return names[str(type_)]
