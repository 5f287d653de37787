"""What this machine keeps of a run, in lines of JSON: each has a digest of its own, and is parsed only when it is asked
for."""

import json
import logging
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

from r3l.store.digests import canonical
from r3l.store.files.local import cache_folder, replace_text
from r3l.store.stage import Store
from r3l.store.tables.schemas import VERSIONS

FORMAT = 6
VERSION = blake2b(canonical([FORMAT, VERSIONS]), digest_size=16).digest()
log = logging.getLogger("r3l.store")


def index_path(store: Store, run: str, kind: str = "index") -> Path:
    """Return the path of a run's cached index or figures."""
    return cache_folder() / kind / sha256(store.root.encode()).hexdigest()[:16] / f"{run}.json"


def recall(path: Path, run: str) -> dict[str, Any] | None:
    """Return what is cached of a run; None if there is nothing, it is incomplete, or another version made it."""
    lines = recalled(path)
    content = parsed(lines[0]) if lines else None
    return content if content and content["run"] == run else None


def recalled(path: Path) -> list[bytes]:
    """Return the lines of what was remembered, not parsed: most questions don't need them all."""
    try:
        return path.read_bytes().split(b"\n")
    except OSError:
        return []


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return what a line of the cache says; None where it is torn, or another version wrote it."""
    if not untorn(line):
        return None
    content: dict[str, Any] = json.loads(line[len(digest_of(b"")) :])
    return content


def untorn(line: bytes) -> bool:
    size = len(digest_of(b""))
    return line[:size] == digest_of(line[size:])


def remember(path: Path, *parts: dict[str, Any]) -> bool:
    """Write the cache atomically, each part on a line. If it cannot be written, the next reader repeats the work."""
    lines = (json.dumps(part, separators=(",", ":")).encode() for part in parts)
    try:
        replace_text(path, "\n".join((digest_of(line) + line).decode() for line in lines))
    except OSError as error:
        log.debug("%s: not written (%s)", path, error)
        return False
    return True


def digest_of(line: bytes) -> bytes:
    return blake2b(line, digest_size=16, key=VERSION).hexdigest().encode()
