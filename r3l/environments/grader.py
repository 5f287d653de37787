"""Marks for answers, from a process of their own: no answer, however hostile, costs more than the limit or hangs anything."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from r3l.errors import WorldError

START_TIMEOUT_S = 120.0  # to import sympy on a loaded machine
ALARM_SHARE = 0.9  # the grader's own alarm comes first: a process that survives need not be started again
LONGEST_ANSWER = 10_000  # characters
Library = Literal["math_verify", "reasoning_gym"]
PACKAGE_ROOT = str(Path(__file__).parent.parent.parent)


@dataclass(frozen=True, slots=True)
class Grade:
    """`reason` says why an answer could not be judged (it then counts as wrong); it never holds the gold answer."""

    correct: bool
    reason: str = ""


class Grader:
    """One grader process, started when it is first needed and again after it had to be stopped. It marks by one library,
    which it imports before any clock runs.
    """

    def __init__(self, timeout_s: float, library: Library = "math_verify") -> None:
        self.timeout_s, self.library = timeout_s, library
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.unread = b""

    def verify(self, gold: str, answer: str) -> Grade:
        """Whether two answers are the same mathematics. Raises `WorldError` where no grader can be started."""
        return self.grade({"gold": gold, "answer": answer})

    def score(self, kind: str, entry: dict[str, Any], answer: str) -> Grade:
        """Whether `answer` solves a reasoning-gym task."""
        return self.grade({"kind": kind, "entry": entry, "answer": answer})

    def start(self) -> None:
        """Begin to start it, without waiting for it."""
        if self.process is not None and self.process.poll() is None:
            return
        self.ready, self.unread = False, b""
        paths = [PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH", "")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "r3l.environments.grader_process", str(self.timeout_s * ALARM_SHARE), self.library],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})

    def grade(self, request: dict[str, Any]) -> Grade:
        if len(request["answer"]) > LONGEST_ANSWER:
            return Grade(False, f"too large: more than {LONGEST_ANSWER} characters")
        with self.lock:
            self.await_ready()
            try:
                self.write(request)
                answer = self.read_line(time.monotonic() + self.timeout_s)
            except (BrokenPipeError, EOFError):
                self.stop()
                return Grade(False, "too large: the grader died of it")
            if answer is None:
                self.stop()
                return Grade(False, "timeout")
        return Grade(**answer)

    def await_ready(self) -> None:
        self.start()
        if self.ready:
            return
        try:
            self.ready = self.read_line(time.monotonic() + START_TIMEOUT_S) is not None
        except EOFError:
            self.ready = False
        if not self.ready:
            self.stop()
            raise WorldError("the grader could not be started: install the extra with `pip install 'r3l[math]'`, and see what "
                             f"`python -m r3l.environments.grader_process 5 {self.library}` says")

    def write(self, request: dict[str, Any]) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        line = memoryview(json.dumps(request).encode() + b"\n")
        while line:
            line = line[self.process.stdin.write(line) or 0:]

    def read_line(self, deadline: float) -> dict[str, Any] | None:
        """None where nothing came in time. Raises `EOFError` where the process has ended."""
        assert self.process is not None
        assert self.process.stdout is not None
        while b"\n" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            if not (more := os.read(self.process.stdout.fileno(), 65536)):
                raise EOFError
            self.unread += more
        line, self.unread = self.unread.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """Kill it; the next use starts another."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process, self.ready = None, False


@cache
def shared_grader(timeout_s: float, library: Library) -> Grader:
    """The grader of this process."""
    return Grader(timeout_s, library)
