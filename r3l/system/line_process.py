"""A child process that answers lines of JSON with lines of JSON, and that may be ended at any time."""

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO

from r3l.system.child_environment import PYTHON


class LineProcess:
    """``python -m MODULE ARGUMENTS``, started at once. One thread uses it at a time."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str], folder: str | None = None) -> None:
        self.process = subprocess.Popen(
            [*PYTHON, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what was read beyond a line would be out of sight of `select`
            cwd=folder,
            env=environment,
        )
        self.unread = b""

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def send(self, message: Any) -> None:
        """Write one line. Raise `BrokenPipeError` where the process has ended."""
        assert self.process.stdin is not None
        line = memoryview(json.dumps(message).encode() + b"\n")
        while line:
            line = line[self.process.stdin.write(line) or 0 :]

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Read the next line; None where it does not come in time. Raise `EOFError` where the process has ended."""
        assert self.process.stdout is not None
        deadline, parts = time.monotonic() + seconds, [self.unread]
        while b"\n" not in parts[-1]:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                self.unread = b"".join(parts)
                return None
            parts.append(os.read(self.process.stdout.fileno(), 1 << 20))
            if not parts[-1]:
                raise EOFError
        line, _, self.unread = b"".join(parts).partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def private_output() -> TextIO:
    """Keep standard output for answers alone: whatever else prints, in Python or in C, goes to standard error."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(descriptor, "w", encoding="utf-8")


def write(answers: TextIO, message: dict[str, Any]) -> None:
    """Answer with one line. The process ends where nobody is there to read it."""
    try:
        answers.write(json.dumps(message, allow_nan=False) + "\n")
        answers.flush()
    except BrokenPipeError:
        os._exit(0)
