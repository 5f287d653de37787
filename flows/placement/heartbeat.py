"""The heartbeat of a remote job. It is kept in the store, the one place that both hosts reach."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from r3l.errors import R3LError, StoreError
from r3l.exploration.progress import Progress
from r3l.pipeline.logs import log
from r3l.store.files.local import Files, read_object

Counts = dict[str, dict[str, float]]  # stage -> name -> sum so far


class Superseded(R3LError):
    """This job's host had been silent for so long that the job was given to another one."""


class Beat:
    """The state of a remote job: the number of its try, the number of beats, and its counts so far."""

    def __init__(self, files: Files, path: str, attempt: int, counts: Callable[[], Counts]) -> None:
        self.files, self.path, self.attempt, self.counts = files, path, attempt, counts
        self.number = 0
        self.superseded = threading.Event()

    def write(self) -> None:
        """Write one beat. The beat of a later try is left as it is; it means that this try is no longer wanted."""
        if read_object(self.files, self.path).get("attempt", -1) > self.attempt:
            self.superseded.set()
            return
        self.number += 1
        beat = {"attempt": self.attempt, "number": self.number, "counts": self.counts()}
        self.files.put(self.path, json.dumps(beat).encode())

    def check(self) -> None:
        """Raise `Superseded` if another host has the job now. Call this before putting anything in its place."""
        self.write()
        if self.superseded.is_set():
            raise Superseded(
                f"{self.path}: a later try of this job runs on another host; what this one made is not used"
            )


@contextmanager
def beating(files: Files, path: str, attempt: int, every_s: float, counts: Callable[[], Counts]) -> Iterator[Beat]:
    """Beat every `every_s` seconds for as long as the block runs, with what `counts` says. A store that can't be
    reached is tried again."""
    beat, over = Beat(files, path, attempt, counts), threading.Event()
    beat.check()
    # a process that a shell starts in the background ignores SIGINT and could not end itself
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def run() -> None:
        while not over.wait(every_s) and not beat.superseded.is_set():
            try:
                beat.write()
            except (StoreError, OSError) as error:
                log().warning("%s: no heartbeat written (%s)", path, error)
        if beat.superseded.is_set() and not over.is_set():
            # Nobody waits for this try any more. A signal ends a wait of the main thread; a flag would not be seen in
            # it.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=run, name="r3l-heartbeat", daemon=True)
    thread.start()
    try:
        yield beat
    finally:
        over.set()
        thread.join()


class Listener:
    """Watch the beats of one try. Only changes count, by this host's clock, because other clocks may be wrong."""

    def __init__(self, files: Files, path: str, attempt: int) -> None:
        self.files, self.path, self.attempt = files, path, attempt
        self._last: dict[str, Any] = {}
        self.begin()

    def begin(self) -> None:
        """Count the silence from now on: the job has not begun yet."""
        self._changed = time.monotonic()

    def listen(self) -> Counts:
        """Read what was counted since the last time. A store that can't be reached has nothing new."""
        try:
            beat = read_object(self.files, self.path)
        except (StoreError, OSError):
            beat = self._last
        if beat == self._last or beat.get("attempt") != self.attempt:
            return {}
        # Beats hold sums, so that a beat which nobody heard loses no counts: the difference to the last one heard is
        # what is new.
        before, self._last, self._changed = self._last.get("counts", {}), beat, time.monotonic()
        return {
            stage: {name: value - before.get(stage, {}).get(name, 0.0) for name, value in counts.items()}
            for stage, counts in beat["counts"].items()
        }

    def silent(self) -> float:
        """Measure the seconds since the last change."""
        return time.monotonic() - self._changed


def counts_of(progress: Progress) -> Callable[[], Counts]:
    """Sum up `progress`, without its times and what this host counts for itself alone."""

    def counts() -> Counts:
        return {
            stage: {name: value for name, value in amounts.items() if name not in {"began", "ended"}}
            for stage, amounts in progress.snapshot().items()
            if stage not in {"engine", "shards"}
        }

    return counts
