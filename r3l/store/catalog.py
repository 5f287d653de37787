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

from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.index import blocks
from r3l.store.index.bundles import bundled
from r3l.store.index.contents import STAGES_SCHEMA, Contents, contents_of, place
from r3l.store.index.exported import take_rows
from r3l.store.index.readable import gather
from r3l.store.index.scans import address, pattern_of, quoted, union
from r3l.store.layout import key_of
from r3l.store.manifest import Manifest
from r3l.store.metrics import expressions, select_lists
from r3l.store.stage import Store
from r3l.store.tables.columns import duck_type
from r3l.store.tables.schemas import PLACE, TABLES

# Each view may use those before it.
VIEWS = (
    "base",
    "retries",
    "distilled",
    "continuations",
    "pivots",
    "groups",
    "account",
    "replies",
    "turn_credit",
    "sampler_ratios",
    "dominance",
    "confusion",
    "diagnoses",
    "pivot_accuracy",
    "held_out",
    "iterations",
    "genealogy",
    "alarm_parts",
    "alarm_figures",
    "alarms",
)
MACROS = "credit_macros"
LOOKS_AROUND = frozenset({"show", "tables", "information_schema", "duckdb_views", "duckdb_tables", "sqlite_master"})
CALLS_MACRO = re.compile(r"\b(credit|mask)_\w+\s*\(")
READS = frozenset({"from", "join", "table", "describe", "summarize", "pivot", "unpivot"})  # of a table
# Which stages' files the views of one kind of trajectory read: an extra base is sampled in place of a retry.
TRAJECTORIES_OF = {
    "base_trajectories": ("base", "retries"),
    "retry_trajectories": ("retries",),
    "distilled_trajectories": ("distilled",),
    "continuation_trajectories": ("continuations",),
}
STORED = {f"stored.{table}": table for table in TABLES}
ALL = frozenset({"stages", *VIEWS, *TRAJECTORIES_OF, *TABLES, *STORED, MACROS})
FOOTERS = 2_000  # files up to which a connection keeps what each says of itself, some 10 kB: questions open them again
LEFT_OUT = "left_out"  # a table of every connection


def connect(
    store: Store,
    runs: Sequence[str] | None = None,
    branch: str = "",
    verify: bool = False,
    question: str = "",
    at: int | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open an in-memory connection with every view over these runs (None: all), after verifying their files.

    A damaged stage is left out, and its run named with the reason in the table `left_out`.

    Args:
        branch: the line of each run that the views show; schema `lines` has all of them.
        verify: look at the bytes of every file, though they were seen on this machine before.
        question: make the views that this SQL needs and no others, where it names any; empty: all of them.
        at: the only iteration that the views show, for questions about one attempt; None: all.

    Raises:
        StoreError: nothing of the only run that was asked for is sound.
    """
    only = names_needed(question)
    wide = only == ALL or "stages" in words_of(question)
    everything, left_out, _ = gather(store, runs, verify, stages_read(only), wide=wide, at=at)
    if not verify:
        everything = bundled(store, everything, tables_in(only), make=only != ALL)
    return open_connection(store, everything, branch, left_out, only)


def connect_to(store: Store, manifests: Sequence[Manifest], only: frozenset[str] = ALL) -> duckdb.DuckDBPyConnection:
    """Open the same over the stages of these manifests, without verification."""
    return open_connection(store, contents_of(manifests), only=only)


def open_connection(
    store: Store,
    contents: Contents,
    branch: str = "",
    left_out: Mapping[str, str] = MappingProxyType({}),
    only: frozenset[str] = ALL,
) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    store.files.attach(connection)
    parts = [*contents.own, *contents.taken_over]
    if 0 < len(parts) <= FOOTERS:
        connection.execute("SET parquet_metadata_cache = true")
    build(connection, contents, store.files.url(""), branch, only)
    made = {view: path for view, path in contents.views.items() if view in only}
    for view, path in made.items():
        take_rows(connection, view, path)
    connection.execute("CREATE TABLE left_out (run VARCHAR, why VARCHAR)")
    if left_out:
        connection.executemany("INSERT INTO left_out VALUES (?, ?)", list(left_out.items()))
    tables = tables_in(only)
    paths = {*made.values(), *(address(part, store.files.url("")) for part in parts if part.table in tables)}
    # what a connection for users may open, once it is locked; DuckDB asks for both
    connection.execute("SET allowed_paths = ?", [sorted({*paths, *map(pattern_of, paths)})])
    return connection


def names_needed(question: str) -> frozenset[str]:
    """Find the names that a question needs; all where it names a table that is none of them, or asks what there is."""
    words = words_of(question)
    is_known = words & {*ALL, LEFT_OUT} or (words and not words & READS)
    if not is_known or words & LOOKS_AROUND or CALLS_MACRO.search(question.lower()):
        return ALL
    views = set(words & ALL)
    for view in reversed(VIEWS):
        if view in views:
            views |= ALL.intersection(re.findall(r"(?:FROM (?!lines\b)|lines\.)(\w+)", view_sql(view)))
    return frozenset(views | {name for name, table in STORED.items() if "stored" in words and table in views})


def words_of(question: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", question.lower()))


def tables_in(only: frozenset[str]) -> frozenset[str]:
    """Return the tables whose files these tables and views are made of."""
    of_trajectories = {"trajectories"} if only & TRAJECTORIES_OF.keys() else set()
    return only | of_trajectories | {STORED[name] for name in only & STORED.keys()}


def stages_read(only: frozenset[str]) -> frozenset[str] | None:
    """Return the stages whose files these tables and views are made of; None: all, and what is known of them."""
    if not only or "stages" in only:
        return None
    narrowed = {stage for name in only & TRAJECTORIES_OF.keys() for stage in TRAJECTORIES_OF[name]}
    return frozenset(name for name, its in STAGES.items() if only & {*its.tables, "events"} or name in narrowed)


def build(
    connection: duckdb.DuckDBPyConnection,
    contents: Contents,
    root: str = "",
    branch: str = "",
    only: frozenset[str] = ALL,
) -> None:
    """Create the views that the dictionary names, in a fresh connection: tables and views over all lines, then those of
    one.

    A view that is made binds all that it reads anew, down to the first file of each table and the names of the others.
    So views are made over empty tables with the same columns, whose place the views of files take at the end.
    """
    connection.execute("CREATE SCHEMA IF NOT EXISTS stored; CREATE SCHEMA IF NOT EXISTS lines")
    if "stages" in only:
        names = [name for name, column in contents.stages.items() if column or not contents.stages["run"]]
        fill(connection, "main.stages", contents.stages, names)
        connection.execute("CREATE TABLE lines.stages AS FROM main.stages")
        fill(connection, "lines.stages", contents.seen, names)
    queries = table_queries(contents, root, only)
    for name, (table, _) in queries.items():
        declarations = ", ".join(f'"{column.name}" {duck_type(column.type)}' for column in (*PLACE, *TABLES[table]))
        connection.execute(f"CREATE TABLE {name} ({declarations})")
    for view in VIEWS:
        if view in only:
            connection.execute(view_sql(view))
    for name in (*TABLES, *VIEWS):
        if name in only:
            connection.execute(f"CREATE VIEW main.{name} AS FROM lines.{name} WHERE branch = {quoted(branch)}")
    for name, (_, query) in queries.items():
        connection.execute(f"DROP TABLE {name}; CREATE VIEW {name} AS {query}")
    if MACROS in only:
        connection.execute(view_sql(MACROS))


def fill(
    connection: duckdb.DuckDBPyConnection, table: str, rows: Mapping[str, list[Any]], names: Sequence[str]
) -> None:
    """Add rows of `stages`, given as columns, of which only `names` are read. As parameters: making an Arrow array of a
    list imports pandas, which takes longer than all the rest.
    """
    types = {name: duck_type(STAGES_SCHEMA.field(name).type) for name in names}
    declarations = ", ".join(f'"{name}" {type_}' for name, type_ in types.items())
    lists = ", ".join(f"unnest(${place}::{type_}[])" for place, type_ in enumerate(types.values(), 1))
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({declarations})")
    connection.execute(f"INSERT INTO {table} SELECT {lists}", [rows[name] for name in names])


def view_sql(view: str) -> str:
    """Read the view's SQL. Figures of an iteration have their expressions from r3l/store/metrics.py: in `iterations`
    under the names of its parts, in those of alarms under their own."""
    sql = package_files("r3l.store").joinpath("views", f"{view}.sql").read_text(encoding="utf-8")
    figures = {"iterations": select_lists, "alarm_parts": expressions, "alarm_figures": expressions}.get(view)
    block = f"CASE WHEN branch = '' THEN floor(iteration / {blocks.BLOCK}) ELSE 0 END"  # all branches share one block
    return Template(sql).substitute(figures(), block=block) if figures else sql


def load_manifests(store: Store, folders: Sequence[str]) -> list[Manifest]:
    """Load the manifests of these runs, branches or iterations as their stages have them, in the order of the
    pipeline."""
    keys = (key for folder in folders for path in store.files.paths(folder) if (key := key_of(path)))
    return sorted((one for key in keys if (one := manifests.load(store.files, key))), key=place)


def table_queries(contents: Contents, root: str, only: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Write the query of each view of files, by its name, behind the table whose rows they are: in `stored` the rows of
    each file once, in `lines` also those that branches took over."""
    all_parts = [*contents.own, *contents.taken_over]
    views = {
        f"{schema}.{table}": (table, [part for part in parts if part.table == table])
        for schema, parts in (("stored", contents.own), ("lines", all_parts))
        for table in TABLES
        if (f"stored.{table}" if schema == "stored" else table) in only
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
                and part.stage in (*stages, "")
                and (name != "base_trajectories" or part.kind in ("", "base"))
            ],
        )
    return {name: (table, union(table, parts, root)) for name, (table, parts) in views.items()}
