"""The contents of a run that lies as an export: a file for each table, another for what branches took over, and the
rows of `stages`."""

import io

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from r3l.errors import StoreError
from r3l.store.files.web import BRANCHES, STAGES, VIEWS, WebFiles
from r3l.store.index.contents import BUNDLED, STAGES_SCHEMA, Contents, Part
from r3l.store.index.scans import pattern_of, quoted

# Views of which an export holds the rows: they make few bytes out of many.
EXPORTED_VIEWS = ("replies",)


def exported(files: WebFiles, verify: bool) -> Contents:
    """Read which files there are, and the rows of `stages`; the files themselves are read by the range. Raise
    `StoreError` where these rows are none, or the files are to be verified."""
    if verify:
        raise StoreError(f"store {files.root}: only a copy on this machine can be verified")
    try:
        table = pq.read_table(io.BytesIO(files.read(STAGES) or b""))
        stages, seen = (
            table.filter(pa.compute.equal(table["taken_over"], is_other)).select(STAGES_SCHEMA.names).to_pydict()
            for is_other in (False, True)
        )
        own, others = (
            [Part(None, BUNDLED, 0, "", name, files.url(f"{folder}{name}.parquet")) for name in files.index[kind]]
            for kind, folder in (("tables", ""), ("branches", f"{BRANCHES}/"))
        )
        views = {view: files.url(f"{VIEWS}/{view}.parquet") for view in EXPORTED_VIEWS if view in files.index["views"]}
    except (pa.ArrowException, LookupError, TypeError) as error:
        raise StoreError(f"{files.url(STAGES)}: not the stages of an export ({error!r:.200})") from error
    return Contents(stages, seen, own, others, views)


def take_rows(connection: duckdb.DuckDBPyConnection, view: str, path: str) -> None:
    """Put the rows that an export holds of a view, of all lines, in the place of the view's own."""
    described = connection.execute(f"DESCRIBE lines.{view}").fetchall()
    columns = ", ".join(f'"{name}"::{kind} AS "{name}"' for name, kind, *_ in described)
    rows = f"SELECT {columns} FROM read_parquet({quoted(pattern_of(path))})"
    connection.execute(f"CREATE OR REPLACE VIEW lines.{view} AS {rows}")


def stages_table(contents: Contents) -> pa.Table:
    """Make the table that `exported` reads."""
    tables = []
    for rows, is_other in ((contents.stages, False), (contents.seen, True)):
        taken_over = pa.array([is_other] * len(rows["run"]), pa.bool_())
        tables.append(pa.table(rows, schema=STAGES_SCHEMA).append_column("taken_over", taken_over))
    return pa.concat_tables(tables)
