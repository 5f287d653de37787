"""Views over exactly the files that manifests name, in a DuckDB connection of its own: nothing is shared, nothing is stale.

Schema `main` has the tables as they are stored, one row for every row of a file, whatever branch wrote it. Schema `lines` has
them as each branch sees them: what it did not make itself, it has from the run. The views of views/*.sql are over `lines`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import Any

import duckdb
import pyarrow as pa

from r3l.store import manifest as manifests
from r3l.store.layout import key_of
from r3l.store.lines import ORDER, inherited
from r3l.store.schemas import PLACE, TABLES
from r3l.store.stage import Store
from r3l.store.versions import select_list

# Each view may use those before it.
VIEWS = ("base", "retries", "distilled", "pivots", "groups", "account", "dominance", "confusion", "iterations", "genealogy")
MACROS = "credit_macros"
STAGES_SCHEMA = pa.schema(
    [("run", pa.string()), ("branch", pa.string()), ("iteration", pa.int32()), ("stage", pa.string()), ("shard", pa.int32()),
     ("rows", pa.int64()), ("bytes", pa.int64()), ("seconds", pa.float64()), ("fingerprint", pa.string()), ("digest", pa.string()),
     ("schema_version", pa.int32()), ("code_version", pa.string()), ("policy", pa.string()), ("seed", pa.int64()),
     ("settings", pa.string()), ("metrics", pa.string()), ("parents", pa.list_(pa.string())), ("pruned", pa.list_(pa.string())),
     ("committed_at", pa.string())]
)  # fmt: skip


def connect(store: Store, runs: Sequence[str] | None = None) -> duckdb.DuckDBPyConnection:
    """An in-memory connection with every view over these runs (None: all). Raises StoreError for a damaged manifest."""
    return connect_to(store, committed(store, runs))


def connect_to(store: Store, found: Sequence[dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    """The same over the stages of these manifests."""
    own = [part for manifest in found for part in parts_of(store, manifest["branch"], manifest)]
    taken_over = [part for branch, manifest in inherited(found) for part in parts_of(store, branch, manifest)]
    connection = duckdb.connect()
    store.files.attach(connection)
    rows = pa.Table.from_pylist([stage_row(manifest) for manifest in found], STAGES_SCHEMA)
    build(connection, rows, table_views(own, taken_over))
    connection.execute("CREATE TABLE files AS SELECT unnest(?::VARCHAR[]) AS path", [[part.url for part in own]])
    return connection


def build(connection: duckdb.DuckDBPyConnection, stages: pa.Table, views: Sequence[str]) -> None:
    """Everything that the dictionary names, in a fresh connection."""
    connection.register("stages_rows", stages)
    connection.execute("CREATE TABLE stages AS FROM stages_rows; DROP VIEW stages_rows; CREATE SCHEMA lines")
    for statement in (*views, *map(view_sql, (*VIEWS, MACROS))):
        connection.execute(statement)


def view_sql(view: str) -> str:
    return package_files("r3l.store").joinpath("views", f"{view}.sql").read_text(encoding="utf-8")


def committed(store: Store, runs: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The manifests of these runs, in the order of the pipeline."""
    prefixes = [""] if runs is None else list(runs)
    keys = [key for prefix in prefixes for path in store.files.paths(prefix) if (key := key_of(path))]
    keys.sort(key=lambda key: (key.run, key.branch, key.iteration, ORDER[key.stage], -1 if key.shard is None else key.shard))
    return [manifest for key in keys if (manifest := manifests.load(store.files, key))]


@dataclass(frozen=True, slots=True)
class Part:
    """One file of one table, as one branch sees it."""

    run: str
    branch: str
    sharded: bool
    version: int
    table: str
    url: str


def parts_of(store: Store, branch: str, manifest: dict[str, Any]) -> list[Part]:
    """The files of a stage that have rows."""
    folder = manifests.reference(manifest).key.folder
    return [Part(manifest["run"], branch, manifest["shard"] is not None, manifest["schema_version"], part["table"],
                  store.files.url(f"{folder}/{part['file']}"))
            for part in manifest["parts"] if part["rows"]]  # fmt: skip


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
    return [
        f"CREATE VIEW {schema}.{table} AS {union(table, [part for part in parts if part.table == table])}"
        for schema, parts in (("main", own), ("lines", [*own, *taken_over]))
        for table in TABLES
    ]


def union(table: str, parts: Sequence[Part]) -> str:
    """The rows of these files with their place: one scan per run, branch, version and (none or some) shard."""
    if not parts:
        empty = ", ".join(f'NULL::{duck_type(column.type)} AS "{column.name}"' for column in (*PLACE, *TABLES[table]))
        return f"SELECT {empty} WHERE false"
    scans: dict[tuple[str, str, bool, int], list[str]] = {}
    for part in parts:
        scans.setdefault((part.run, part.branch, part.sharded, part.version), []).append(part.url)
    return " UNION ALL ".join(scan(table, *place, urls) for place, urls in scans.items())


def scan(table: str, run: str, branch: str, sharded: bool, version: int, urls: Sequence[str]) -> str:
    columns = select_list(table, version)
    files = f"read_parquet([{', '.join(map(quoted, urls))}], filename = true, hive_partitioning = false)"
    shard = SHARD if sharded else "NULL::INTEGER"
    return f"SELECT {quoted(run)} AS run, {quoted(branch)} AS branch, {shard} AS shard, {columns} FROM {files}"


SHARD = "regexp_extract(filename, '/shard=([0-9]+)/', 1)::INTEGER"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def duck_type(type_: pa.DataType) -> str:
    """The DuckDB name of a column's type."""
    if pa.types.is_list(type_):
        return f"{duck_type(type_.value_type)}[]"
    names = {"string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "bool": "BOOLEAN"}
    return names[str(type_)]
