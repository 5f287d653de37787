"""One writer per iteration: a lock file that names its holder, and that outlives neither its holder nor its lease."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from r3l.errors import StoreError
from r3l.store.files import Files

LEASE_SECONDS = 300.0
RENEW_SECONDS = 60.0


@contextmanager
def held(files: Files, path: str) -> Iterator[None]:
    """Hold the lock at `path`. Raises StoreError naming host, process and time where a living writer holds it."""
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "started": process_start(os.getpid()), "nonce": uuid.uuid4().hex,
            "since": datetime.now(UTC).isoformat(timespec="seconds"), "renewed": time.time()}  # fmt: skip
    take(files, path, mine)
    done = threading.Event()
    renewer = threading.Thread(target=renew, args=(files, path, mine, done), daemon=True, name="r3l-lock")
    renewer.start()
    try:
        yield
    finally:
        done.set()
        renewer.join()
        if owner(files, path).get("nonce") == mine["nonce"]:
            files.delete(path)


def take(files: Files, path: str, mine: dict[str, Any]) -> None:
    """Write the lock if it is free or its holder is dead; the conditional write lets one of several takers win."""
    token = files.token(path)
    holder = owner(files, path) if token else {}
    if token and alive(holder):
        raise StoreError(
            f"{path}: held by {holder.get('host')}, process {holder.get('pid')}, since {holder.get('since')}; "
            "wait for it, or end that process and run again"
        )
    if not files.put_if(path, json.dumps(mine).encode(), token):
        raise StoreError(f"{path}: another writer took it just now; wait for it to end")


def owner(files: Files, path: str) -> dict[str, Any]:
    """Who holds it; empty where nobody does or where the file was torn."""
    try:
        found = json.loads(files.read(path) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def alive(holder: dict[str, Any]) -> bool:
    """On this host: does the process live, and is it the same one? Elsewhere: was the lease renewed of late?"""
    if holder.get("host") == socket.gethostname():
        return bool(holder.get("started")) and process_start(int(holder.get("pid", 0))) == holder["started"]
    return time.time() - float(holder.get("renewed", 0)) < LEASE_SECONDS


def process_start(pid: int) -> str:
    """When a process was started, in the kernel's ticks since boot: tells it from a later one of the same number. Empty: none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return fallback_start(pid)
    after_name = stat.rpartition(")")[2].split()
    return "" if after_name[0] == "Z" else after_name[19]


def fallback_start(pid: int) -> str:
    """Without /proc: only whether the process is there."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return ""
    except PermissionError:
        return "running"
    return "running" if not Path("/proc/self/stat").exists() else ""


def renew(files: Files, path: str, mine: dict[str, Any], done: threading.Event) -> None:
    """Keep the lease fresh until the holder is done."""
    while not done.wait(RENEW_SECONDS):
        if owner(files, path).get("nonce") != mine["nonce"]:
            return
        files.put(path, json.dumps({**mine, "renewed": time.time()}).encode())
