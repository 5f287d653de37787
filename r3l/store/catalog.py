"""Views over exactly the files that manifests name, in a DuckDB connection of their own, so that nothing is stale.

Schema `main` shows one line of each run: the run itself, unless a branch is asked for. Schema `lines` has the same
tables and views for every line: what a branch did not make itself, it has from the run. Schema `stored` has the tables
as they are stored, one row for every row of a file, whatever branch wrote it.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files as package_files
from string import Template
from types import MappingProxyType
from typing import Any

import duckdb

from r3l.errors import StoreError
from r3l.store.contents import STAGES_SCHEMA, Contents, Part, contents_of, place
from r3l.store.index import indexed, load_all
from r3l.store.layout import NAME
from r3l.store.manifest import Manifest
from r3l.store.metrics import expressions, select_lists
from r3l.store.stage import Store
from r3l.store.tables.columns import duck_type
from r3l.store.tables.schemas import PLACE, TABLES
from r3l.store.tables.versions import select_list

# Each view may use those before it.
VIEWS = (
    "base",
    "retries",
    "distilled",
    "continuations",
    "pivots",
    "groups",
    "account",
    "turn_credit",
    "dominance",
    "confusion",
    "diagnoses",
    "pivot_accuracy",
    "held_out",
    "iterations",
    "genealogy",
    "alarm_figures",
    "alarms",
)
MACROS = "credit_macros"
LOOKS_AROUND = frozenset({"show", "tables", "information_schema", "duckdb_views", "duckdb_tables", "sqlite_master"})
READS = frozenset({"from", "join", "table", "describe", "summarize", "pivot", "unpivot"})  # of a table
DAMAGE = (StoreError, OSError, ValueError, TypeError, KeyError)  # what reading a damaged or foreign run may raise
# Which stages' files the views of one kind of trajectory read: an extra base is sampled in place of a retry.
TRAJECTORIES_OF = {
    "base_trajectories": ("base", "retries"),
    "retry_trajectories": ("retries",),
    "distilled_trajectories": ("distilled",),
    "continuation_trajectories": ("continuations",),
}
ALL = frozenset({"stages", *VIEWS, *TRAJECTORIES_OF, *TABLES})
GLOB = re.compile(r"[*?\[]")  # what DuckDB reads in a path as something else
SHOWN = 3  # of the stages that are left out, those that are named
LEFT_OUT = "left_out"  # a table of every connection


def connect(
    store: Store,
    runs: Sequence[str] | None = None,
    branch: str = "",
    verify: bool = False,
    question: str = "",
    newest: int | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open an in-memory connection with every view over these runs (None: all), after verifying their files.

    A damaged stage is left out, and its run named with the reason in the table `left_out`.

    Args:
        branch: the line of each run that the views show; schema `lines` has all of them.
        verify: look at the bytes of every file, though they were seen on this machine before.
        question: make the views that this SQL needs and no others, where it names any; empty: all of them.
        newest: show this many newest iterations of each run and branch (None: all); the files of others aren't opened.

    Raises:
        StoreError: nothing of the only run that was asked for is sound.
    """
    everything, left_out, only = Contents(), {}, needed(question)
    for run in named_runs(store) if runs is None else runs:
        try:
            index = indexed(store, run, verify)
            if index.damage:
                left_out[run] = partly(index.damage)
            if only:
                everything.add(index.contents if newest is None else index.contents.newest(newest))
        except DAMAGE as error:
            if runs is not None and len(runs) == 1:
                raise StoreError(f"run {run}: {reason(error)}") from error
            left_out[run] = reason(error)
    return opened(store, everything, branch, left_out, only)


def left_out_of(store: Store, runs: Sequence[str]) -> dict[str, str]:
    """Return the runs of which answers leave something out, with what and why."""
    left_out = {}
    for run in runs:
        try:
            if damage := indexed(store, run).damage:
                left_out[run] = partly(damage)
        except DAMAGE as error:
            left_out[run] = reason(error)
    return left_out


def partly(damage: Mapping[str, str]) -> str:
    """Say which stages of a run are left out, and why the first one is."""
    names = ", ".join(sorted(damage)[:SHOWN]) + (f" and {len(damage) - SHOWN} more" if len(damage) > SHOWN else "")
    return f"without {len(damage)} damaged stages ({names}): {damage[min(damage)]}"


def reason(error: Exception) -> str:
    """Say why a run is left out, in words."""
    return str(error) if isinstance(error, StoreError | OSError) else f"a manifest of another form ({error!r})"


def connect_to(store: Store, manifests: Sequence[Manifest]) -> duckdb.DuckDBPyConnection:
    """Open the same over the stages of these manifests, without verification."""
    return opened(store, contents_of(manifests))


def opened(
    store: Store,
    contents: Contents,
    branch: str = "",
    left_out: Mapping[str, str] = MappingProxyType({}),
    only: frozenset[str] = ALL,
) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    store.files.attach(connection)
    build(connection, contents, store.files.url(""), branch, only)
    connection.execute("CREATE TABLE left_out (run VARCHAR, why VARCHAR)")
    if left_out:
        connection.executemany("INSERT INTO left_out VALUES (?, ?)", list(left_out.items()))
    tables = only | ({"trajectories"} if only & TRAJECTORIES_OF.keys() else set())
    urls = {store.files.url(part.path) for part in (*contents.own, *contents.taken_over) if part.table in tables}
    connection.execute("CREATE TABLE files AS SELECT unnest($1::VARCHAR[]) AS path", [sorted(urls)])
    return connection


def needed(question: str) -> frozenset[str]:
    """Find the names that a question needs; all where it names a table that is none of them, or asks what there is."""
    words = frozenset(re.findall(r"\w+", question.lower()))
    is_known = words & {*ALL, LEFT_OUT} or (words and not words & READS)
    if not is_known or words & LOOKS_AROUND or any(word.startswith(("credit_", "mask_")) for word in words):
        return ALL
    views = set(words & ALL)
    for view in reversed(VIEWS):
        if view in views:
            views |= ALL.intersection(re.findall(r"(?:FROM (?!lines\b)|lines\.)(\w+)", view_sql(view)))
    return frozenset(views)


def named_runs(store: Store) -> list[str]:
    """List the folders of the store that a run may lie in."""
    return [name for name in store.files.folders("") if NAME.fullmatch(name)]


def build(
    connection: duckdb.DuckDBPyConnection,
    contents: Contents,
    root: str = "",
    branch: str = "",
    only: frozenset[str] = ALL,
) -> None:
    """Create the views that the dictionary names, in a fresh connection: tables and views over all lines, then those of
    one."""
    connection.execute("CREATE SCHEMA stored; CREATE SCHEMA lines")
    if "stages" in only:
        fill(connection, "main.stages", contents.stages)
        connection.execute("CREATE TABLE lines.stages AS FROM main.stages")
        fill(connection, "lines.stages", contents.seen)
    for statement in (*table_views(contents, root, only), *(view_sql(view) for view in VIEWS if view in only)):
        connection.execute(statement)
    for name in (*TABLES, *VIEWS):
        if name in only:
            connection.execute(f"CREATE VIEW main.{name} AS FROM lines.{name} WHERE branch = {quoted(branch)}")
    if only == ALL:
        connection.execute(view_sql(MACROS))


def fill(connection: duckdb.DuckDBPyConnection, table: str, rows: Mapping[str, list[Any]]) -> None:
    """Add rows of `stages`, given as columns. As parameters: making an Arrow array of a list imports pandas, which
    takes longer than all the rest.
    """
    types = {field.name: duck_type(field.type) for field in STAGES_SCHEMA}
    declarations = ", ".join(f'"{name}" {type_}' for name, type_ in types.items())
    lists = ", ".join(f"unnest(${place}::{type_}[])" for place, type_ in enumerate(types.values(), 1))
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({declarations})")
    connection.execute(f"INSERT INTO {table} SELECT {lists}", [rows[name] for name in types])


def view_sql(view: str) -> str:
    """Read the view's SQL. Figures of an iteration have their expressions from r3l/store/metrics.py: in `iterations`
    under the names of its parts, in `alarm_figures` under their own."""
    sql = package_files("r3l.store").joinpath("views", f"{view}.sql").read_text(encoding="utf-8")
    figures = {"iterations": select_lists, "alarm_figures": expressions}.get(view)
    return Template(sql).substitute(figures()) if figures else sql


def committed(store: Store, runs: Sequence[str]) -> list[Manifest]:
    """Load the manifests of these runs as their stages have them, in the order of the pipeline."""
    return sorted(load_all(store, list(runs)), key=place)


def line_of_path(root: str) -> tuple[str, str]:
    """Write SQL for a file's run and branch, of its name alone: a question about one run then opens no file of
    another."""
    below = root.count("/") + 1
    name = f"split_part(filename, '/', {below + 1})"
    return (
        f"split_part(filename, '/', {below})",
        f"CASE WHEN starts_with({name}, 'branch=') THEN substr({name}, 8) ELSE '' END",
    )


def table_views(contents: Contents, root: str, only: frozenset[str]) -> list[str]:
    """Write CREATE VIEW for each table: in `stored` the rows of each file once, in `lines` also those that branches
    took over."""
    all_parts = [*contents.own, *contents.taken_over]
    views = {
        f"{schema}.{table}": (table, [part for part in parts if part.table == table])
        for schema, parts in (("stored", contents.own), ("lines", all_parts))
        for table in TABLES
        if table in only
    }
    for name, stages in TRAJECTORIES_OF.items():
        if name not in only:
            continue
        views[f"lines.{name}"] = (
            "trajectories",
            [
                part
                for part in all_parts
                if part.table == "trajectories"
                and part.stage in stages
                and (name != "base_trajectories" or part.kind in ("", "base"))
            ],
        )
    return [f"CREATE VIEW {name} AS {union(table, parts, root)}" for name, (table, parts) in views.items()]


def union(table: str, parts: Sequence[Part], root: str) -> str:
    """Write SQL for the rows of these files with their place. In few scans: each opens its first file before the query
    begins and all are open at once, while the files of one scan are opened one after another."""
    if not parts:
        empty = ", ".join(f'NULL::{duck_type(column.type)} AS "{column.name}"' for column in (*PLACE, *TABLES[table]))
        return f"SELECT {empty} WHERE false"
    scans: dict[tuple[str | None, str, int], list[str]] = {}
    for part in parts:
        scans.setdefault((part.seen_by, part.shard, part.version), []).append(root + part.path)
    return " UNION ALL ".join(scan(table, root, *place, urls) for place, urls in scans.items())


def scan(table: str, root: str, seen_by: str | None, shard: str, version: int, urls: Sequence[str]) -> str:
    run, branch = line_of_path(root)
    line = branch if seen_by is None else quoted(seen_by)
    patterns = ", ".join(quoted(pattern_of(url)) for url in urls)
    files = f"read_parquet([{patterns}], filename = true, hive_partitioning = false)"
    return f"SELECT {run} AS run, {line} AS branch, {SHARD[shard]} AS shard, {select_list(table, version)} FROM {files}"


SHARD = {
    "path": "regexp_extract(filename, '/shard=([0-9]+)/', 1)::INTEGER",
    "none": "NULL::INTEGER",
}


def pattern_of(path: str) -> str:
    """Write the pattern that matches this path alone: DuckDB takes every path for a pattern.

    Raises:
        StoreError: none does, because a pattern can't hold a backslash.
    """
    if "\\" in path and GLOB.search(path):
        raise StoreError(f"{path}: DuckDB can't open a path with a backslash and one of * ? [; move the store")
    return GLOB.sub(r"[\g<0>]", path)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
