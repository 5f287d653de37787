"""Bundles: the many small files of a table, of a block of iterations that a run has left behind, as one file; of every
five iterations of the newest block; and, for a question about many runs, what is left of some runs that rest.

A question about a whole run, or store, would open each of them. A bundle is a copy, cached on this machine under a name
made of the names that it holds, which say their content; it is used while it has the stamp that it was written with.
Whoever verifies (`r3l sql --verify`, `r3l check`) reads the files themselves.
"""

import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import duckdb

from r3l.store.digests import canonical
from r3l.store.files.local import LocalFiles
from r3l.store.files.staging import newest
from r3l.store.files.stamps import stamp_of
from r3l.store.index.blocks import BLOCK
from r3l.store.index.cached import index_path, recall, remember
from r3l.store.index.contents import BUNDLED, Contents, Part
from r3l.store.index.scans import quoted, union
from r3l.store.stage import Store
from r3l.version import __version__

SMALL = 256 << 10  # bytes of a file on the average: what is larger costs little to open, beside what is read of it
FEW = 5  # iterations of the newest block
FEWEST = 5  # files
MANY = 32  # runs
RESTS_S = 3600.0  # seconds after which a run rests: a bundle of many runs is written anew for each file that comes
ROW_GROUP = 2048  # rows: a question about one iteration reads few of a bundle's
UNUSED_S = 86_400.0  # seconds after which a bundle of files that were replaced is deleted


def bundled(store: Store, contents: Contents, tables: Collection[str], make: bool = True) -> Contents:
    """Return the same contents, with bundles of the files of these tables, each in the place of its first file: those
    that are there, and (`make`) the others. Where none can be written, the contents are left as they are."""
    small = [
        (part, part.line, part.iteration) for part in contents.own if part.table in tables and part.shard != BUNDLED
    ]
    last = dict(sorted((line, iteration) for _, line, iteration in small))
    groups: dict[tuple[str, ...], list[Part]] = {}
    for part, line, iteration in small:
        name = (*line, span(iteration, last[line]), part.table, part.stage, part.kind)
        groups.setdefault(name, []).append(part)
    left = {name: groups.pop(name) for name, parts in [*groups.items()] if not worth_it(name[2], parts)}
    groups |= {name: parts for name, parts in beside(store, left).items() if worth_it("", parts)}
    place: dict[Part, Part] = {}
    for run in {name[0] for name in groups}:
        settled = {name: parts for name, parts in groups.items() if name[0] == run}
        with suppress(OSError, duckdb.Error):
            place |= bundles_of(store, run, settled, make)
    gone = {part for parts in groups.values() if parts[0] in place for part in parts}
    return replace(contents, own=[place.get(part, part) for part in contents.own if part not in gone or part in place])


def beside(store: Store, left: Mapping[tuple[str, ...], list[Part]]) -> dict[tuple[str, ...], list[Part]]:
    """Put together what is left of runs that rest, some 32 in the order of their names. One that comes, goes or wakes
    changes its own neighbourhood alone. Few runs, and those of a store without stamps, are left as they are."""
    runs = sorted({run for run, *_ in left})
    if len(runs) < MANY or not isinstance(store.files, LocalFiles):
        return {}
    latest = (time.time() - RESTS_S) * 1e9
    stamps = ((run, stamp_of(f"{store.root}/{parts[-1].path}")) for (run, *_), parts in left.items())
    awake = {run for run, stamp in stamps if stamp is None or stamp[1] > latest}
    first, neighbourhood = "", dict[str, str]()
    for run in runs:
        if not first or blake2b(run.encode(), digest_size=1).digest()[0] < 256 // MANY:
            first = run
        neighbourhood[run] = f"~{first}"
    groups: dict[tuple[str, ...], list[Part]] = {}
    for (run, *_, table, stage, kind), parts in left.items():
        if run not in awake:
            groups.setdefault((neighbourhood[run], "", "runs", table, stage, kind), []).extend(parts)
    return groups


def span(iteration: int, newest: int) -> str:
    """Name the iterations whose files are bundled with those of this one: its block, or a few of the newest block."""
    block = iteration // BLOCK
    return str(block) if block < newest // BLOCK else f"{block}.{iteration // FEW}"


def worth_it(iterations: str, parts: list[Part]) -> bool:
    """Tell whether there are many files, and small ones. A few iterations of the newest block must all be there: a
    bundle is written anew for each file that comes."""
    whole = "." not in iterations or len({part.iteration for part in parts}) == FEW
    return whole and len(parts) >= FEWEST and sum(part.bytes for part in parts) < SMALL * len(parts)


def bundles_of(store: Store, run: str, groups: dict[tuple[str, ...], list[Part]], make: bool) -> dict[Part, Part]:
    """Return the first file of each group -> the bundle of the group."""
    folder = index_path(store, run, "bundles").with_suffix("")
    made: dict[Part, Part] = {}
    for name, parts in groups.items():
        path = folder / f"{'~'.join(name[1:])}~{key_of(store, parts)}.parquet"
        known = recall(path.with_suffix(".json"), run)
        if known is None or known["stamp"] != stamp_of(path):
            if not make:
                continue
            write(store, parts, path)
            remember(path.with_suffix(".json"), {"run": run, "stamp": stamp_of(path)})
            drop_unused(name, folder)
        made[parts[0]] = parts[0]._replace(shard=BUNDLED, path=str(path), version=0)
    return made


def key_of(store: Store, parts: Iterable[Part]) -> str:
    named = canonical([__version__, store.root, *(part.path for part in parts)])
    return blake2b(named, digest_size=10).hexdigest()


def write(store: Store, parts: list[Part], path: Path) -> None:
    """Write a bundle, whole or not at all: its rows as the tables of schema `stored` have them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{uuid.uuid4().hex}")
    rows = union(parts[0].table, parts, store.files.url(""))
    settings = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}"
    try:
        with duckdb.connect() as connection:
            store.files.attach(connection)
            connection.execute("SET threads = 1")  # else each small file becomes a row group of its own
            connection.execute(f"COPY ({rows}) TO {quoted(str(partial))} ({settings})")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def drop_unused(name: tuple[str, ...], folder: Path) -> None:
    """Delete what an earlier state of the same files was bundled in and, once a block is left behind, the bundles of a
    few iterations of it and of those before, unless a reader may have them open."""
    _, branch, iterations, *of = name
    for old in folder.glob(f"{branch}~*~{'~'.join(of)}~*"):
        its = old.name.split("~")[1]
        is_passed = "." in its and iterations.isdecimal() and int(its.partition(".")[0]) <= int(iterations)
        if (its == iterations or is_passed) and time.time() - newest(old) > UNUSED_S:
            old.unlink(missing_ok=True)
