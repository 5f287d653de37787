"""One worker process as its pool sees it: calls out, futures back, and a clock on the call it is at."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import IO, Any

from r3l.errors import Interrupted, R3LError, ServerAway, SessionLost, WorldError
from r3l.system.child_environment import PYTHON, child_environment

START_TIMEOUT_S = 120.0  # a loaded machine may take long to import an engine
CLOSE_S = 2.0
CLOSED = "the environment's workers were closed"


@dataclass(slots=True)
class Pending:
    """A call without an answer yet. `subject` names its task and what was asked, for messages."""

    subject: str
    future: Future[Any]
    convert: Callable[[Any], Any] = field(repr=False)


class WorkerProcess:
    """Started at once; answers come in the order of the calls. When it dies, `lost` is set and every open call
    fails."""

    def __init__(
        self, settings_json: str, on_counts: Callable[[dict[str, int]], None], on_lost: Callable[[WorkerProcess], None]
    ) -> None:
        self.on_counts, self.on_lost = on_counts, on_lost
        self.lock = threading.Lock()
        self.pending: dict[int, Pending] = {}
        self.lost = ""  # why it is gone, in words
        self.closing = False
        self.ready = False
        self.last_answer = time.monotonic()
        self.process = subprocess.Popen(
            [*PYTHON, "-m", "r3l.environments.workers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment({"OMP_NUM_THREADS": "1"}),  # the workers are many
            text=True,
            encoding="utf-8",
            process_group=0,  # its own: Ctrl-C in a terminal is for the process that started it
        )
        self.write(settings_json)
        threading.Thread(target=self.read, args=(self.process.stdout,), daemon=True).start()

    def call(self, number: int, subject: str, convert: Callable[[Any], Any], message: dict[str, Any]) -> Future[Any]:
        pending = Pending(subject, Future(), convert)
        # its answer is set by the reader, which must not find it cancelled
        pending.future.set_running_or_notify_cancel()
        with self.lock:
            if not self.lost and not self.closing:
                if not self.pending:
                    self.last_answer = time.monotonic()
                self.pending[number] = pending
        if self.closing:
            fail(pending, Interrupted(f"{subject}: {CLOSED}"))
        elif self.lost:
            fail(pending, SessionLost(self.lost))
        else:
            self.write(json.dumps({"id": number, **message}))
        return pending.future

    def write(self, line: str) -> None:
        try:
            with self.lock:
                assert self.process.stdin is not None
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return  # it died: the reader fails the open calls

    def read(self, answers: IO[str]) -> None:
        with answers:  # else the pipe stays open until somebody collects what refers to the worker
            for line in answers:
                self.receive(json.loads(line))
        self.stop(f"the worker process ended by itself (exit status {self.process.wait()})")
        self.on_lost(self)

    def receive(self, answer: dict[str, Any]) -> None:
        self.ready, self.last_answer = True, time.monotonic()
        with self.lock:
            pending = self.pending.pop(answer.get("id", -1), None)
        self.on_counts(answer.get("counts", {}))
        if pending is None:
            return
        if "error" in answer:
            fail(pending, (ServerAway if answer.get("away") else WorldError)(answer["error"]))
            return
        try:
            value = pending.convert(answer["value"])
        # else the reader would end, and every later call wait for ever
        except (TypeError, KeyError, ValueError) as error:
            fail(
                pending,
                WorldError(
                    f"{pending.subject}: an answer that can't be read ({error}); is the worker of the same version?"
                ),
            )
            return
        pending.future.set_result(value)

    def overdue(self, timeout_s: float) -> bool:
        """Tell whether the call it is at has had its time."""
        waited_s = time.monotonic() - self.last_answer
        return bool(self.pending) and not self.lost and waited_s > self.allowed_s(timeout_s)

    def allowed_s(self, timeout_s: float) -> float:
        """Allow the first call the time that a process needs to start."""
        return timeout_s if self.ready else max(timeout_s, START_TIMEOUT_S)

    def stop(self, reason: str) -> None:
        """End the process and fail its open calls: the oldest is what it was at, the others are lost with it. Where the
        world was never made, no call is without blame."""
        with self.lock:
            if self.lost:
                return
            open_calls = list(self.pending.values())
            self.pending.clear()
            at = open_calls[0].subject if open_calls else "no call"
            after = "its sessions are gone, a new worker takes over"
            self.lost = f"{reason}, at {at}; {after}"
        self.process.kill()
        for number, pending in enumerate(open_calls):
            kind = SessionLost if number and self.ready else WorldError
            fail(pending, kind(f"{pending.subject}: {self.lost if number else f'{reason}; {after}'}"))

    def let_go(self) -> None:
        """Fail its open calls with `Interrupted`, take no more, and end its input, which ends it."""
        with self.lock:
            self.closing = True
            open_calls = list(self.pending.values())
            self.pending.clear()
        for pending in open_calls:
            fail(pending, Interrupted(f"{pending.subject}: {CLOSED}"))
        try:
            if self.process.stdin:
                self.process.stdin.close()
        except BrokenPipeError:
            self.process.kill()

    def close(self) -> None:
        """Let go as `let_go` does, and wait for its end; it is killed if that takes too long."""
        self.let_go()
        try:
            self.process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def fail(pending: Pending, error: R3LError) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)
