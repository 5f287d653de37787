"""What tells that a file is the one whose bytes were seen before, and digests that are remembered by it.

Weights are hashed once on a machine: as long as size, time of the last change and inode of each file stay, so does the
digest. It is kept under R3L_CACHE by these alone, not by the path, so that a folder may be moved into its place.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from r3l.store.files.local import cache_folder, replace_text

Stamp = list[int]  # size, time of the last change (ns), inode
# what changed this shortly before it was looked at may change again within one tick of its clock
UNSETTLED_NS = 100_000_000
WORTH_WAITING = 64 << 20  # bytes that take longer to read again than what changed just now takes to settle
KEPT = 512  # remembered digests
DIGEST = re.compile(r"[0-9a-f]{16}")


def stamp_of(path: str | Path) -> Stamp | None:
    """Read the stamp of a file; None where there is none."""
    try:
        stat = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def content_digest(paths: Iterable[Path], verify: bool = False) -> str:
    """Hash the files' names, sizes and bytes, in this order, to 16 hex digits. The bytes are read where the files were
    not seen before with these stamps, or to `verify` them."""
    paths = list(paths)
    settle(paths)
    began, name = time.time_ns(), stamps_name(paths)
    if not verify and (cached_digest := recall(name)):
        return cached_digest
    digest = sha256()
    for path in paths:
        digest.update(f"{path.name}:{path.stat().st_size};".encode())
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    digits = digest.hexdigest()[:16]
    # Whoever wrote while these were read has left another stamp, unless the clock stood still meanwhile.
    if newest(paths) < began - UNSETTLED_NS and stamps_name(paths) == name:
        remember(name, digits)
    return digits


def settle(paths: Sequence[Path]) -> None:
    """Wait until large files that were written just now can be told from later ones by their stamps."""
    age = time.time_ns() - newest(paths)
    if 0 <= age <= UNSETTLED_NS and sum(path.stat().st_size for path in paths) > WORTH_WAITING:
        time.sleep((UNSETTLED_NS - age) / 1e9 + 0.001)


def newest(paths: Sequence[Path]) -> int:
    return max((path.stat().st_mtime_ns for path in paths), default=0)


def stamps_name(paths: Sequence[Path]) -> Path:
    """Name the file that remembers the digest of files with these names and stamps."""
    stamps = [(path.name, path.stat().st_dev, stamp_of(path)) for path in paths]
    return cache_folder() / "digests" / sha256(json.dumps(stamps).encode()).hexdigest()[:32]


def recall(name: Path) -> str:
    """Read the remembered digest; empty where there is none, or where it is torn."""
    with suppress(OSError, UnicodeDecodeError):
        if DIGEST.fullmatch(text := name.read_text(encoding="ascii")):
            return text
    return ""


def remember(name: Path, digest: str) -> None:
    """Write the digest down and drop the oldest ones. Where that can't be done, the bytes are read again next time."""
    with suppress(OSError):
        replace_text(name, digest)
        by_age = sorted(name.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in by_age[:-KEPT]:
            old.unlink(missing_ok=True)
