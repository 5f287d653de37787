"""One writer per iteration: a lock file that names its holder and expires with its holder or its lease."""

import json
import logging
import math
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from r3l.errors import StoreError
from r3l.store.files import process
from r3l.store.files.local import Files, read_object

LOCK = "writer.lock"
LEASE_SECONDS = 300.0
RENEW_SECONDS = 60.0
SKEW_SECONDS = 60.0  # by which another host's clock may be ahead
log = logging.getLogger("r3l.store")


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder that a lock file names."""

    process: str
    since: str
    renewed: float

    @property
    def lease_left(self) -> float:
        """Compute the seconds for which the lease still runs. One renewed in the future was not renewed by a clock that
        can be trusted."""
        age = time.time() - self.renewed
        return LEASE_SECONDS - age if age >= -SKEW_SECONDS else 0.0

    @property
    def lives(self) -> bool:
        """Tell whether this exact process lives; if this host cannot tell, whether its lease runs."""
        is_alive = process.lives(self.process)
        return self.lease_left > 0 if is_alive is None else is_alive

    def __str__(self) -> str:
        mark = process.read(self.process)
        return f"host {mark.host:.80}, process {mark.pid}" if mark else f"process {self.process!r:.80}"


def holder_of(files: Files, path: str) -> Holder | None:
    """Find the holder that the lock at `path` names; None where there is no lock, or a torn one."""
    content = read_object(files, path)
    mark, since, renewal_time = (content.get(name) for name in ("process", "since", "renewed"))
    if (
        not isinstance(mark, str)
        or not isinstance(since, str)
        or not isinstance(renewal_time, float)
        or not math.isfinite(renewal_time)
    ):
        return None
    return Holder(mark, since, renewal_time)


def living(files: Files, path: str) -> Holder | None:
    """Find the holder of the lock at `path`, if it lives."""
    holder = holder_of(files, path)
    return holder if holder and holder.lives else None


@contextmanager
def hold(files: Files, path: str) -> Iterator[None]:
    """Hold the lock at `path`. Raise StoreError naming host, process and time where a living writer holds it."""
    mine = {
        "process": process.mark(),
        "nonce": uuid.uuid4().hex,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "renewed": time.time(),
    }
    try:
        take(files, path, mine)
    except StoreError:
        give_up(files, path, mine)  # it may be in its place though its writing failed, as on a disk that is just full
        raise
    end = threading.Event()
    renewer = threading.Thread(target=renew, args=(files, path, mine, end), daemon=True, name="r3l-lock")
    renewer.start()
    try:
        yield
    finally:
        end.set()
        renewer.join()
        give_up(files, path, mine)


def give_up(files: Files, path: str, mine: dict[str, Any]) -> None:
    """Delete the lock, if it is this holder's."""
    # by the nonce and not by the process: this process may hold a later lock at the same place
    if read_object(files, path).get("nonce") == mine["nonce"]:
        files.delete(path)


def take(files: Files, path: str, mine: dict[str, Any]) -> None:
    """Write the lock if it is free or its holder is dead; the conditional write lets one of several takers win."""
    # read before the holder: if the lock changes hands in between, the conditional write below fails
    token = files.token(path)
    if token and (holder := living(files, path)):
        unseen = f" (which can't be seen from here: its lease ends in {holder.lease_left:.0f} s)" * (
            process.lives(holder.process) is None
        )
        raise StoreError(
            f"{path}: held by {holder}{unseen}, since {holder.since:.40}; wait for it, or end it and run again"
        )
    # of several who found the holder dead, one wins here, and the others are told
    if not files.put_if(path, json.dumps(mine).encode(), token):
        raise StoreError(f"{path}: another writer took it just now; wait for it to end")


def held_by_me(files: Files, path: str) -> bool:
    """Tell whether this process holds the lock."""
    return read_object(files, path).get("process") == process.mark()


def renew(files: Files, path: str, mine: dict[str, Any], done: threading.Event) -> None:
    """Keep the lease fresh until the holder is done. A store that can't be reached for a while is tried again."""
    while not done.wait(RENEW_SECONDS):
        try:
            token = files.token(path)
            # the lease ran out, and another took the lock: writing on would mix two writers
            if read_object(files, path).get("nonce") != mine["nonce"]:
                log.error(
                    "%s: lost to another writer, after %.0f s without a renewal; end this run", path, LEASE_SECONDS
                )
                return
            files.put_if(path, json.dumps({**mine, "renewed": time.time()}).encode(), token)
        except (StoreError, OSError) as error:
            log.warning("%s: the lease could not be renewed (%s); trying again in %.0f s", path, error, RENEW_SECONDS)
