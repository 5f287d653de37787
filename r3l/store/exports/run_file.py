"""A run as one file to share: one row per trajectory with its turns, reflections, credit and training rows nested."""

import os
from importlib.resources import files as package_files
from pathlib import Path

import duckdb

from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.index.scans import quoted
from r3l.store.query import require_runs
from r3l.store.stage import Store

SQL = package_files("r3l.store.exports").joinpath("run_file.sql").read_text(encoding="utf-8")
FORMATS = {".parquet": "FORMAT parquet, COMPRESSION zstd", ".jsonl": "FORMAT json, ARRAY false"}


def export_run(store: Store, run: str, path: Path) -> int:
    """Write a run with its branches to a ``.parquet`` or ``.jsonl`` file. The result is the number of its rows.

    The file appears whole or not at all. Raise StoreError for an unknown run or ending, and where the file can't be
    written.
    """
    if path.suffix not in FORMATS:
        raise StoreError(f"{path}: expected a name that ends in {' or '.join(FORMATS)}")
    require_runs(store, [run])
    growing = path.with_name(f".{path.name}~{os.getpid()}")
    with connect(store, [run]) as connection:
        try:
            connection.execute(f"COPY ({SQL}) TO {quoted(str(growing))} ({FORMATS[path.suffix]})")
            growing.replace(path)
        except (duckdb.Error, OSError) as error:
            growing.unlink(missing_ok=True)
            raise StoreError(f"{path}: can't be written ({error})") from error
        return int(connection.execute("SELECT count(*) FROM stored.trajectories").fetchall()[0][0])
