"""Files and folders that are being written. Each name begins with its maker's mark, and only those of dead makers are
deleted."""

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from r3l.errors import StoreError
from r3l.store.files import process

GUARD = "guard"  # the file that writers lock; it stays
UPDATE = re.compile(r"(?:update|replaced)-(\d+)")
UNSEEN_S = 86_400.0  # seconds after which a file of a maker that can't be seen from here counts as left behind


def staging_name(what: str = "file") -> str:
    """Make a unique name for something that this process writes."""
    return f"{process.mark()}~{what}-{uuid.uuid4().hex}"


def staged_update(iteration: int, what: str = "update") -> str:
    """Make the same for an update's folder: whoever holds the lock of the iteration may sweep what others left of
    it."""
    return staging_name(f"{what}-{iteration:05d}")


def sweep(folder: Path, iteration: int | None = None) -> list[Path]:
    """Delete what dead makers staged in `folder`. The result is what was deleted.

    Args:
        iteration: the iteration whose lock the caller holds. A maker on another host, of an update of that iteration,
            has lost its lease.
    """
    orphans = [path for path in sorted(folder.iterdir()) if left_behind(path, iteration)] if folder.is_dir() else []
    for path in orphans:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return orphans


def left_behind(path: Path, iteration: int | None) -> bool:
    """Tell whether the maker is known to be dead, or nobody can be at work on it any more."""
    maker, _, what = path.name.rpartition("~")
    lives, update = process.lives(maker), UPDATE.match(what)
    if lives is not None:
        return not lives
    if update:
        return int(update[1]) == iteration
    return path.name != GUARD and time.time() - newest(path) > UNSEEN_S


def newest(path: Path) -> float:
    """Find when a file, or anything in a folder, was last written; now where it is just going away."""
    try:
        return max(one.stat().st_mtime for one in (path, *path.rglob("*")))
    except FileNotFoundError:
        return time.time()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise StoreError for a disk that is full or fails while `path` is written."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: can't be written ({error.strerror}); nothing was left half written; run again when there is room"
        ) from error


def sync(handles: Sequence[int]) -> None:
    """Bring the bytes of files to the disk. All at once: the file system then waits for the disk once, not for each."""
    if len(handles) == 1:
        os.fsync(handles[0])
        return
    with ThreadPoolExecutor(len(handles), thread_name_prefix="r3l-sync") as pool:
        for synced in [pool.submit(os.fsync, handle) for handle in handles]:
            synced.result()


def sync_folder(folder: Path) -> None:
    """Make a rename inside a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
