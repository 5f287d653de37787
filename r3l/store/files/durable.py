"""Bytes and names that survive a power cut."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from r3l.errors import StoreError


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
