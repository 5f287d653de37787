"""Questions to a catalog connection: those of the code, and those of users, which can only read the tables."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from r3l.errors import StoreError, did_you_mean
from r3l.store.catalog import TRAJECTORIES_OF, connect, tables_in, words_of
from r3l.store.index.contents import Contents
from r3l.store.index.scans import union
from r3l.store.stage import Store
from r3l.store.tables.columns import duck_type
from r3l.store.tables.schemas import PLACE, TABLES

LOCKED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET autoload_known_extensions = false",
    "SET autoinstall_known_extensions = false",
    "SET lock_configuration = true",
)


def query(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
) -> pa.Table:
    """Run one statement. DuckDB tells columns of one name apart (``run``, ``run_1``); decimals become numbers. Raise
    `StoreError` with DuckDB's own words where it can't be run."""
    try:
        relation = connection.sql(sql, params=dict(parameters) if isinstance(parameters, Mapping) else list(parameters))
        if relation is not None and len(set(relation.columns)) < len(relation.columns):
            relation = relation.project("*")
        table = relation.to_arrow_table() if relation is not None else None
    except (duckdb.Error, UnicodeDecodeError) as error:  # DuckDB may cut its message within a character
        raise StoreError(f"this query can't be run: {error}") from error
    return pa.table({}) if table is None else with_plain_numbers(table)


def with_plain_numbers(table: pa.Table) -> pa.Table:
    """Turn columns of decimals into whole numbers of 64 bits, or into floats where they have digits behind the point or
    do not fit. JSON lacks decimals, and DuckDB gives one for a sum of whole numbers and for a number with a point."""
    for k, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            column = table.column(k)
            try:
                column = column.cast(pa.int64() if field.type.scale == 0 else pa.float64())
            except pa.ArrowInvalid:
                column = column.cast(pa.float64())
            table = table.set_column(k, field.name, column)
    return table


def require_runs(store: Store, runs: Sequence[str]) -> None:
    """Raise StoreError for the first of these runs that the store does not have."""
    for run in runs:
        if not store.has_run(run):
            there = store.runs()
            raise StoreError(
                f"run {run!r}: not in {store.root}; it has {', '.join(there) or 'no runs'}{did_you_mean(run, there)}"
            )


def require_branch(store: Store, runs: Iterable[str], branch: str) -> None:
    """Raise StoreError where none of the runs has the branch."""
    there = sorted({name for run in runs for name in store.branches(run)})
    if branch not in there:
        raise StoreError(f"branch {branch!r}: no run has it; there are {', '.join(there) or 'no branches'}")


def connect_for_users(
    store: Store, runs: Sequence[str] | None = None, memory: str = "2GB", **asked: Any
) -> duckdb.DuckDBPyConnection:
    """Open a connection for SQL of users. It opens only the files of the views, and its settings are locked. What is
    `asked` for (branch, verify, question), and the runs: as in `connect`."""
    connection = connect(store, runs, **asked)
    connection.execute("SET memory_limit = ?", [memory])
    lock(connection)
    return connection


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Leave it what it may open by now, and its settings as they are."""
    for setting in LOCKED:
        connection.execute(setting)


def ask(connection: duckdb.DuckDBPyConnection, sql: str, seconds: float = 60.0) -> pa.Table:
    """Answer a user's question. Raise StoreError unless it is one SELECT, or where it takes longer than `seconds`.

    In a read-only transaction: a SELECT may hold a DELETE in its WITH.
    """
    one_select(sql)
    clock = threading.Timer(seconds, connection.interrupt)
    clock.start()
    connection.execute("BEGIN TRANSACTION READ ONLY")
    try:
        return query(connection, sql)
    except StoreError as error:
        if isinstance(error.__cause__, duckdb.InterruptException):
            raise StoreError(f"this query was stopped after {seconds:g} s; ask for fewer rows or fewer runs") from error
        raise
    finally:
        clock.cancel()
        connection.execute("ROLLBACK")


def one_select(sql: str) -> duckdb.Statement:
    """Parse the statement. Raise StoreError unless it is exactly one SELECT."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise StoreError(f"this query can't be run: {error}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(statement.type.name for statement in statements) or "nothing"
        raise StoreError(f"one SELECT is expected (or FROM, WITH, DESCRIBE, SUMMARIZE, SHOW), got {kinds}")
    return statements[0]


MOST = 64 << 20  # bytes of files: several times as many in memory


def load(
    connection: duckdb.DuckDBPyConnection, contents: Contents, root: str, only: frozenset[str], questions: str
) -> bool:
    """Replace the views of files, which this connection has of these contents, by tables in memory; where the files are
    too large for that, leave them as they are, and return False.

    Args:
        only: the tables and views that the connection has.
        questions: all that will be asked, with the views in between. A column that is not named in it is null.
    """
    parts = [part for part in (*contents.own, *contents.taken_over) if part.table in tables_in(only)]
    if sum(part.bytes for part in parts) > MOST:
        return False
    words = words_of(questions)
    taken_over = {part.table for part in contents.taken_over}
    for table in sorted(tables_in(only) & TABLES.keys()):
        rows = union(table, [part for part in parts if part.table == table], root)
        columns = ", ".join(
            f'"{column.name}"'
            if column in PLACE or column.name in words
            else f'NULL::{duck_type(column.type)} AS "{column.name}"'
            for column in (*PLACE, *TABLES[table])
        )
        connection.execute(
            f"DROP VIEW IF EXISTS lines.{table}; CREATE TABLE lines.{table} AS SELECT {columns} FROM ({rows})"
        )
        if f"stored.{table}" in only and table not in taken_over:
            connection.execute(f"DROP VIEW stored.{table}; CREATE VIEW stored.{table} AS FROM lines.{table}")
    for name in TRAJECTORIES_OF.keys() & only:
        connection.execute(f"DROP VIEW lines.{name}; CREATE VIEW lines.{name} AS FROM lines.trajectories")
    return True
