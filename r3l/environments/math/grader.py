"""Grading of answers in processes of their own: no answer, however hostile, costs more than the limit of processor time
or hangs anything, and others are marked beside it."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from r3l.errors import WorldError
from r3l.system.child_environment import child_environment
from r3l.system.line_process import LineProcess
from r3l.system.packages import install_command

START_TIMEOUT_S = 120.0  # to import sympy on a loaded machine
WALL_SHARE = 10  # an answer may wait for a processor so many times as long as it may use one
GRACE_S = 1.0  # the grader ends an answer itself; only where it does not say so in time is it stopped
AT_ONCE = 2  # answers marked side by side
LONGEST_ANSWER = 10_000  # characters
Library = Literal["math_verify", "reasoning_gym"]


@dataclass(frozen=True, slots=True)
class Grade:
    """`reason` says why an answer could not be judged (it then counts as wrong); it never holds the gold answer."""

    correct: bool
    reason: str = ""


class Grader:
    """Mark by one library, in `AT_ONCE` processes: while one is at a hostile answer another marks the rest. They are
    started when they are first needed, and one that an answer ended is replaced at once, so that no later answer waits
    for imports. `timeout_s`: processor seconds for one answer. Any thread may ask.
    """

    def __init__(self, timeout_s: float, library: Library = "math_verify") -> None:
        self.timeout_s, self.library = timeout_s, library
        self.places = threading.Semaphore(AT_ONCE)
        self.lock = threading.Lock()
        self.free: list[GraderProcess] = []
        self.marking: list[GraderProcess] = []

    def verify(self, gold: str, answer: str) -> Grade:
        """Grade whether two answers are the same mathematics. Raise `WorldError` where no grader can be started."""
        return self.grade({"gold": gold, "answer": answer})

    def readable(self, gold: str) -> bool:
        """Tell whether a gold answer is mathematics. Raise `WorldError` where no grader can be started."""
        return self.grade({"gold": gold, "answer": None}).correct

    def score(self, kind: str, entry: dict[str, Any], answer: str) -> Grade:
        """Grade whether `answer` solves a reasoning-gym task."""
        return self.grade({"kind": kind, "entry": entry, "answer": answer})

    def start(self) -> None:
        """Start the process without waiting for it."""
        with self.lock:
            if not self.free and not self.marking:
                self.free.append(GraderProcess(self.timeout_s, self.library))

    def grade(self, request: dict[str, Any]) -> Grade:
        if len(request["answer"] or "") > LONGEST_ANSWER:
            return Grade(False, f"too large: more than {LONGEST_ANSWER} characters")
        with self.places:
            process = self.taken()
            try:
                process.await_ready()
                return process.mark(request)
            finally:
                self.put_back(process)

    def taken(self) -> GraderProcess:
        """Take a process that lives and, where there is one, has its libraries imported."""
        with self.lock:
            self.free = sorted((one for one in self.free if not one.ended), key=lambda one: not one.ready)
            process = self.free.pop(0) if self.free else GraderProcess(self.timeout_s, self.library)
            self.marking.append(process)
            return process

    def put_back(self, process: GraderProcess) -> None:
        """Put a process among the free ones, and start replacements."""
        with self.lock:
            if process not in self.marking:
                return  # stopped meanwhile
            self.marking.remove(process)
            if not process.ended:
                self.free.append(process)
            while process.ready and len(self.free) + len(self.marking) < AT_ONCE:
                self.free.append(GraderProcess(self.timeout_s, self.library))

    def stop(self) -> None:
        """End its processes. The next use starts new ones."""
        with self.lock:
            for process in self.free:
                process.stop()
            for process in self.marking:  # the thread that reads from it sees its end, and closes its pipes
                process.process.kill()
            self.free.clear()
            self.marking.clear()


class GraderProcess(LineProcess):
    """One `grader_process`, started at once. One thread uses it at a time."""

    def __init__(self, timeout_s: float, library: Library) -> None:
        self.timeout_s, self.library, self.ready = timeout_s, library, False
        module = "r3l.environments.math.grader_process"
        super().__init__(module, str(timeout_s), library, environment=child_environment())

    def mark(self, request: dict[str, Any]) -> Grade:
        """Mark an answer. A process that gave no mark is ended."""
        try:
            self.send(request)
            if answer := self.receive(self.timeout_s * WALL_SHARE + GRACE_S):
                return Grade(**answer)
            reason = "timeout"
        except (BrokenPipeError, EOFError):
            reason = "timeout" if self.process.wait() == -signal.SIGVTALRM else "too large: the grader died of it"
        self.stop()
        return Grade(False, reason)

    def await_ready(self) -> None:
        """Wait for its first line. Raise `WorldError` where it does not start."""
        if self.ready:
            return
        with suppress(EOFError):
            self.ready = self.receive(START_TIMEOUT_S) is not None
        if not self.ready:
            self.stop()
            raise WorldError(
                f"the grader could not be started: {install_command(['math'])}, and see what "
                f"`python -m r3l.environments.math.grader_process 1 {self.library}` says"
            )


@cache
def shared_grader(timeout_s: float, library: Library) -> Grader:
    """Make the one grader of this process."""
    return Grader(timeout_s, library)
