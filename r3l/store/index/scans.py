"""SQL that reads the files of one table, each row with its place."""

import re
from collections.abc import Sequence

from r3l.errors import StoreError
from r3l.store.index.contents import BUNDLED, Part
from r3l.store.tables.columns import duck_type
from r3l.store.tables.schemas import PLACE, TABLES
from r3l.store.tables.versions import select_list

GLOB = re.compile(r"[*?\[]")  # what DuckDB reads in a path as something else


def union(table: str, parts: Sequence[Part], root: str) -> str:
    """Return the rows of these files with their place. In few scans: each opens its first file before the query begins
    and all are open at once, while the files of one scan are opened one after another."""
    if not parts:
        empty = ", ".join(f'NULL::{duck_type(column.type)} AS "{column.name}"' for column in (*PLACE, *TABLES[table]))
        return f"SELECT {empty} WHERE false"
    scans: dict[tuple[str | None, str, int], list[str]] = {}
    for part in parts:
        scans.setdefault((part.seen_by, part.shard, part.version), []).append(address(part, root))
    return " UNION ALL ".join(scan(table, root, *place, urls) for place, urls in scans.items())


def scan(table: str, root: str, seen_by: str | None, shard: str, version: int, urls: Sequence[str]) -> str:
    if shard == BUNDLED:
        names = ", ".join(f'"{column.name}"' for column in (*PLACE, *TABLES[table]))
        return f"SELECT {names} FROM {reading(urls)}"
    run, branch = line_of_path(root)
    line = branch if seen_by is None else quoted(seen_by)
    place = f"{run} AS run, {line} AS branch, {SHARD[shard]} AS shard"
    return f"SELECT {place}, {select_list(table, version)} FROM {reading(urls)}"


def reading(urls: Sequence[str]) -> str:
    patterns = ", ".join(quoted(pattern_of(url)) for url in urls)
    return f"read_parquet([{patterns}], filename = true, hive_partitioning = false)"


def address(part: Part, root: str) -> str:
    """Return where DuckDB finds a file: a bundle lies on this machine, wherever the store is."""
    return part.path if part.shard == BUNDLED else root + part.path


SHARD = {"path": "regexp_extract(filename, '/shard=([0-9]+)/', 1)::INTEGER", "none": "NULL::INTEGER"}


def pattern_of(path: str) -> str:
    """Return the pattern that matches this path alone: DuckDB takes every path for a pattern.

    Raises:
        StoreError: none does, because a pattern can't hold a backslash.
    """
    if "\\" in path and GLOB.search(path):
        raise StoreError(f"{path}: DuckDB can't open a path with a backslash and one of * ? [; move the store")
    return GLOB.sub(r"[\g<0>]", path)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def line_of_path(root: str) -> tuple[str, str]:
    """Return SQL for a file's run and branch, of its name alone: a question about one run then opens no file of
    another."""
    below = root.count("/") + 1
    name = f"split_part(filename, '/', {below + 1})"
    return (
        f"split_part(filename, '/', {below})",
        f"CASE WHEN starts_with({name}, 'branch=') THEN substr({name}, 8) ELSE '' END",
    )
