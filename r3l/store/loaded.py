"""Tables of a connection whose files are read once, for many questions that would each open all of them."""

import duckdb

from r3l.store.catalog import TRAJECTORIES_OF, tables_in, words_of
from r3l.store.index.contents import Contents
from r3l.store.index.scans import union
from r3l.store.tables.columns import duck_type
from r3l.store.tables.schemas import PLACE, TABLES

MOST = 64 << 20  # bytes of files: several times as many in memory


def load(
    connection: duckdb.DuckDBPyConnection, contents: Contents, root: str, only: frozenset[str], questions: str
) -> None:
    """Replace the views of files, which this connection has of these contents, by tables in memory; where the files are
    too large for that, leave them as they are.

    Args:
        only: the tables and views that the connection has.
        questions: all that will be asked, with the views in between. A column that is not named in it is null.
    """
    parts = [part for part in (*contents.own, *contents.taken_over) if part.table in tables_in(only)]
    if sum(part.bytes for part in parts) > MOST:
        return
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
