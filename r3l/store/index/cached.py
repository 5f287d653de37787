"""What this machine keeps of a run, in lines of JSON: each has a digest of its own, and is parsed only when it is asked
for."""

import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b, sha256
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

from r3l.store.digests import canonical
from r3l.store.files.local import cache_folder, replace_text
from r3l.store.files.stamps import Stamp
from r3l.store.index.contents import NARROW, Contents, Part
from r3l.store.stage import Store
from r3l.store.tables.schemas import VERSIONS

FORMAT = 8
VERSION = blake2b(canonical([FORMAT, VERSIONS]), digest_size=16).digest()
log = logging.getLogger("r3l.store")


def index_path(store: Store, run: str, kind: str = "index") -> Path:
    """Return the path of a run's cached index or figures."""
    return cache_folder() / kind / sha256(store.root.encode()).hexdigest()[:16] / f"{run}.json"


def recall(path: Path, run: str) -> dict[str, Any] | None:
    """Return what is cached of a run; None if there is nothing, it is incomplete, or another version made it."""
    content = recalled(path)
    return content if content and content["run"] == run else None


def recalled(path: Path) -> dict[str, Any] | None:
    """Return the first part that was remembered, with the `sizes` of the lines of the others."""
    try:
        with open(path, "rb") as file:
            return parsed(file.readline().removesuffix(b"\n"))
    except OSError:
        return None


def lines_at(path: Path, sizes: Sequence[int], places: Iterable[int]) -> list[bytes]:
    """Return the lines of some of the other parts, not parsed: most questions need few of them. Where the file is
    another by now, they are torn, or none."""
    try:
        with open(path, "rb") as file:
            return [line_at(file, sizes[place:]) for place in places]
    except OSError:
        return []


def line_at(file: BinaryIO, sizes: Sequence[int]) -> bytes:
    """Read the line with which so many lines of these sizes end the file."""
    file.seek(1 - sum(sizes) - len(sizes), os.SEEK_END)
    return file.read(sizes[0])


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return what a line of the cache says; None where it is torn, or another version wrote it."""
    if not untorn(line):
        return None
    content: dict[str, Any] = json.loads(line[len(digest_of(b"")) :])
    return content


def untorn(line: bytes) -> bool:
    size = len(digest_of(b""))
    return line[:size] == digest_of(line[size:])


def remember(path: Path, head: dict[str, Any], *parts: dict[str, Any]) -> bool:
    """Write the cache atomically, each part on a line. If it cannot be written, the next reader repeats the work."""
    others = [line_of(part) for part in parts]
    lines = [line_of(head | {"sizes": [*map(len, others)]}), *others]
    try:
        replace_text(path, b"\n".join(lines).decode())
    except OSError as error:
        log.debug("%s: not written (%s)", path, error)
        return False
    return True


def line_of(part: dict[str, Any]) -> bytes:
    line = json.dumps(part, separators=(",", ":")).encode()
    return digest_of(line) + line


def digest_of(line: bytes) -> bytes:
    return blake2b(line, digest_size=16, key=VERSION).hexdigest().encode()


def lines_of(
    head: dict[str, Any], folders: dict[str, int], stamps: dict[str, dict[str, Stamp]], contents: Contents
) -> Iterator[dict[str, Any]]:
    """Yield the lines of a block's file: what each question needs, then a line per stage, then the rows of `stages`:
    the columns that views read, and the others."""
    stages = {name: stage_of(name, stamps) for name in folders}
    yield head | {"folders": {name: when for name, when in folders.items() if not stages[name]}}
    for stage, files in stamps.items():
        own = {name: when for name, when in folders.items() if stages[name] == stage}
        yield {"folders": own, "files": files} | parts_in(contents, stage)
    for narrow in (True, False):
        yield {
            kind: {name: column for name, column in rows.items() if (name in NARROW) == narrow}
            for kind, rows in (("stages", contents.stages), ("seen", contents.seen))
        }


def stage_of(folder: str, stages: Collection[str]) -> str:
    """Name the one of these stages that a folder belongs to; empty for any other folder."""
    stage = folder.partition("/iteration=")[2].partition("/")[2].partition("/")[0]
    return stage if stage in stages else ""


def parts_in(contents: Contents, stage: str) -> dict[str, list[Any]]:
    """Return the files of a stage, each with its place among those of all stages."""
    return {
        name: [[place, *part] for place, part in enumerate(parts) if part.stage == stage]
        for name, parts in (("own", contents.own), ("taken_over", contents.taken_over))
    }


def contents_from(kept: list[dict[str, Any]], rows: list[bytes]) -> Contents:
    """Return the contents that `remember` was given, of some stages, in the order that they had."""
    columns: dict[str, Any] = {}
    for content in filter(None, map(parsed, rows)):
        for kind, some in content.items():
            columns.setdefault(kind, {}).update(some)
    parts = {
        name: [Part(*part) for _, *part in sorted((one for stage in kept for one in stage[name]), key=itemgetter(0))]
        for name in ("own", "taken_over")
    }
    return Contents(**columns, own=parts["own"], taken_over=parts["taken_over"])
