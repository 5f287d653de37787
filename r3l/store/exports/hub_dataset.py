"""A run as a data set in the layout of the Hugging Face hub: a Parquet file for each table, a card, and Croissant."""

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.files.web import BRANCHES, FORM, INDEX, STAGES, VIEWS
from r3l.store.index.exported import EXPORTED_VIEWS, stages_table
from r3l.store.index.readable import gather
from r3l.store.index.scans import quoted, union
from r3l.store.layout import key_of
from r3l.store.query import require_runs
from r3l.store.stage import Store
from r3l.store.tables.columns import TableColumn
from r3l.store.tables.schemas import PLACE, TABLES

OF_CROISSANT = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset "
    "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source "
    "subField transform"
)
# The context of Croissant 1.0: readers refuse a file without its language, and warn of any other word that is missing.
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in OF_CROISSANT.split()},
}
TYPES = {"string": "sc:Text", "bool": "sc:Boolean", "float": "sc:Float", "double": "sc:Float"}  # else whole numbers


def export_to_hub(store: Store, run: str, folder: Path) -> dict[str, int]:
    """Write a run with its branches as a data set into a new folder, which is there whole or not at all. Return the
    rows of each table that has any.

    Raises:
        StoreError: an unknown run, or a folder that has files already or can't be written.
    """
    require_runs(store, [run])
    folder = folder.absolute()
    growing = folder.with_name(f".{folder.name}~{os.getpid()}")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise StoreError(f"{folder}: has files already; name a new folder")
        growing.mkdir(parents=True)
        rows = write(store, run, growing)
        growing.replace(folder)
    except (duckdb.Error, OSError) as error:
        raise StoreError(f"{folder}: can't be written ({error})") from error
    finally:
        shutil.rmtree(growing, ignore_errors=True)
    return rows


def write(store: Store, run: str, folder: Path) -> dict[str, int]:
    """Write the files of the data set; count the rows of each table that has any."""
    rows: dict[str, int] = {}
    with connect(store, [run]) as connection:
        for table in TABLES:
            file = folder / f"{table}.parquet"
            copy(connection, f"FROM stored.{table}", file)
            rows[table] = pq.read_metadata(file).num_rows
            if not rows[table]:
                file.unlink()
        (folder / VIEWS).mkdir(parents=True)
        for view in EXPORTED_VIEWS:
            copy(connection, f"FROM lines.{view}", folder / VIEWS / f"{view}.parquet")
    rows = {table: number for table, number in rows.items() if number}
    write_index(store, run, folder, list(rows))
    (folder / "croissant.json").write_text(json.dumps(croissant(run, folder, rows), indent=1), encoding="utf-8")
    (folder / "README.md").write_text(card(run, rows), encoding="utf-8")
    return rows


def copy(connection: duckdb.DuckDBPyConnection, rows: str, file: Path) -> None:
    connection.execute(f"COPY ({rows}) TO {quoted(str(file))} (FORMAT parquet, COMPRESSION zstd)")


def write_index(store: Store, run: str, folder: Path, tables: list[str]) -> None:
    """Write beside the tables and views what `r3l sql` needs to ask them where they lie: which there are, the rows of
    `stages`, and the rows that branches took over from the run, as they see them."""
    contents, _, _ = gather(store, [run])
    others = sorted({part.table for part in contents.taken_over})
    (folder / BRANCHES).mkdir(parents=True)
    with duckdb.connect() as connection:
        store.files.attach(connection)
        for table in others:
            rows = union(table, [part for part in contents.taken_over if part.table == table], store.files.url(""))
            copy(connection, rows, folder / BRANCHES / f"{table}.parquet")
    pq.write_table(stages_table(contents), folder / STAGES, compression="zstd")
    manifests = [path for path in store.files.paths(run) if key_of(path)]
    names = {"tables": tables, "branches": others, "views": [*EXPORTED_VIEWS], "manifests": manifests}
    (folder / INDEX).write_text(json.dumps({"form": FORM, "run": run, **names}), encoding="utf-8")


def card(run: str, rows: dict[str, int]) -> str:
    """Write the card: each table is a configuration, so that `load_dataset(NAME, "turns")` loads it."""
    configs = [f"- config_name: {table}\n  data_files: {table}.parquet\n" for table in rows]
    lines = [
        f"| {table} | {number:,} | {', '.join(column.name for column in columns(table))} |"
        for table, number in rows.items()
    ]
    text = (
        "A run of r3l, every stage of every iteration as a table. `trajectory_id` and `iteration` join them; a branch "
        "is a replay with other settings. `croissant.json` says what each column means."
    )
    head = (
        f"---\npretty_name: {json.dumps(run)}\ntags: [reinforcement-learning, r3l]\nconfigs:\n{''.join(configs)}---\n"
    )
    table = "\n".join(["| table | rows | columns |", "|---|---|---|", *lines])
    return f"{head}\n# {json.dumps(run)[1:-1]}\n\n{text}\n\n{table}\n"


def columns(table: str) -> list[TableColumn]:
    """List the columns of a table as it is exported: its own, and those of its place in the store."""
    return [*TABLES[table], *PLACE]


def croissant(run: str, folder: Path, rows: dict[str, int]) -> dict[str, Any]:
    """Describe the files and their columns (Croissant 1.0)."""
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": run,
        "description": f"The run {run} of r3l: every stage of every iteration as a table.",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": f"{table}.parquet",
                "name": f"{table}.parquet",
                "contentUrl": f"{table}.parquet",
                "encodingFormat": "application/x-parquet",
                "sha256": sha256((folder / f"{table}.parquet").read_bytes()).hexdigest(),
            }
            for table in rows
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": table,
                "name": table,
                "field": [described(table, one) for one in columns(table)],
            }
            for table in rows
        ],
    }


def described(table: str, column: TableColumn) -> dict[str, Any]:
    """Describe a column; a list is a repeated value."""
    is_list = pa.types.is_list(column.type)
    type_ = str(column.type.value_type if is_list else column.type)
    return {
        "@type": "cr:Field",
        "@id": f"{table}/{column.name}",
        "name": column.name,
        "description": column.meaning,
        "dataType": TYPES.get(type_, "sc:Integer"),
        **({"repeated": True} if is_list else {}),
        "source": {"fileObject": {"@id": f"{table}.parquet"}, "extract": {"column": column.name}},
    }
