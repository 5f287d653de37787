"""One writer per iteration: a lock file that names its holder, and that outlives neither its holder nor its lease."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from r3l.errors import StoreError
from r3l.store import process
from r3l.store.files import Files, read_object

LOCK = "writer.lock"
LEASE_SECONDS = 300.0
RENEW_SECONDS = 60.0
log = logging.getLogger("r3l.store")


@contextmanager
def held(files: Files, path: str) -> Iterator[None]:
    """Hold the lock at `path`. Raises StoreError naming host, process and time where a living writer holds it."""
    mine = {"process": process.mark(), "nonce": uuid.uuid4().hex, "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "renewed": time.time()}  # fmt: skip
    take(files, path, mine)
    done = threading.Event()
    renewer = threading.Thread(target=renew, args=(files, path, mine, done), daemon=True, name="r3l-lock")
    renewer.start()
    try:
        yield
    finally:
        done.set()
        renewer.join()
        if read_object(files, path).get("nonce") == mine["nonce"]:
            files.delete(path)


def take(files: Files, path: str, mine: dict[str, Any]) -> None:
    """Write the lock if it is free or its holder is dead; the conditional write lets one of several takers win."""
    token = files.token(path)
    holder = read_object(files, path) if token else {}
    if token and alive(holder):
        host, pid, _ = str(holder["process"]).split("~")
        raise StoreError(f"{path}: held by host {host}, process {pid}, since {holder['since']}; wait for it, or end it and run again")
    if not files.put_if(path, json.dumps(mine).encode(), token):
        raise StoreError(f"{path}: another writer took it just now; wait for it to end")


def alive(holder: dict[str, Any]) -> bool:
    """On this host: does that very process live? Elsewhere: was the lease renewed of late? A torn file has no holder."""
    if not {"process", "since", "renewed"} <= set(holder):
        return False
    known = process.lives(str(holder["process"]))
    return time.time() - float(holder["renewed"]) < LEASE_SECONDS if known is None else known


def held_by_me(files: Files, path: str) -> bool:
    """Whether this process holds the lock."""
    return read_object(files, path).get("process") == process.mark()


def renew(files: Files, path: str, mine: dict[str, Any], done: threading.Event) -> None:
    """Keep the lease fresh until the holder is done. A store that can't be reached for a while is tried again."""
    while not done.wait(RENEW_SECONDS):
        try:
            token = files.token(path)
            if read_object(files, path).get("nonce") != mine["nonce"]:
                log.error("%s: lost to another writer, after %.0f s without a renewal; end this run", path, LEASE_SECONDS)
                return
            files.put_if(path, json.dumps({**mine, "renewed": time.time()}).encode(), token)
        except (StoreError, OSError) as error:
            log.warning("%s: the lease could not be renewed (%s); trying again in %.0f s", path, error, RENEW_SECONDS)
