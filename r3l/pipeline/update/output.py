"""The lines that a process of the update prints, under a watch."""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from r3l.errors import Interrupted, TrainingError
from r3l.store.files.process import mark
from r3l.system.child_environment import PYTHON, child_environment
from r3l.training.parallel.launcher import LAUNCHER
from r3l.training.parallel.nodes import several

STOP_GRACE_S = 4.0  # an ended run ends within 10 s
LOOK_S = 0.5
IDLE = "idle"  # the event by which a process says that it waits for another job


class Output:
    """Reads the lines in a thread of its own, since a blocked read can't be interrupted."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.ended = False  # nothing more comes
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=[process], daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def of_a_job(self, timeout_s: float, stopped: threading.Event) -> Iterator[dict[str, Any]]:
        """Yield what is printed until the job's process ends or waits for another job.

        Raises:
            TrainingError: it was silent for `timeout_s` seconds.
            Interrupted: `stopped` was set.
        """
        silent_since = time.monotonic()
        while True:
            going_on(stopped)
            try:
                line = self._lines.get(timeout=min(timeout_s, LOOK_S))
            except queue.Empty:
                if time.monotonic() - silent_since < timeout_s:
                    continue
                raise TrainingError(
                    f"the update job was silent for {timeout_s:g} s and was stopped (training.timeout_s sets the limit)"
                ) from None
            if line is None:
                going_on(stopped)  # whoever ended the work may have closed the process by now
                self.ended = True
                return
            event = parse_line(line)
            if event.get("event") == IDLE:
                return
            silent_since = time.monotonic()
            yield event


def going_on(stopped: threading.Event) -> None:
    if stopped.is_set():
        raise Interrupted("the update job was stopped, since nobody waits for it any more")


def begin_process(command: Sequence[str], log: IO[str] | int, stdin: int | None = None) -> subprocess.Popen[str]:
    """Start a process of the update, whose lines are read. It ends with this one, however this one ends."""
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
        env=child_environment({"PYTHONUNBUFFERED": "1", LAUNCHER: mark()}),
    )


def parse_line(line: str) -> dict[str, Any]:
    """Parse a line as the event that it is; any other line is an event of the kind text."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return {"event": "text", "text": line.rstrip()}
    return value if isinstance(value, dict) else {"event": "text", "text": line.rstrip()}


def stop(process: subprocess.Popen[str]) -> None:
    """End a process; one that does not end when it is asked to is killed after `STOP_GRACE_S`."""
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


COMMAND = [*PYTHON, "-m", "r3l.training"]


class WaitingProcess:
    """None runs until `start` is called. Safe for use by several threads."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._output: Output | None = None
        self._ranks = 0
        self._lock = threading.Lock()

    def start(self, ranks: int) -> None:
        """Start a process where none waits, which does jobs in so many ranks."""
        with self._lock:
            if several() or ranks == 0 or (self._process and self._process.poll() is None):
                return
            # Its log goes nowhere until it has a job, and with that a file for it.
            self._process = begin_process(
                [*COMMAND, "--processes", str(ranks)], subprocess.DEVNULL, stdin=subprocess.PIPE
            )
            self._output, self._ranks = Output(self._process), ranks

    def take(self, spec: Path, ranks: int) -> tuple[subprocess.Popen[str], Output] | None:
        """Hand the job over. The result is the process that does it with what it prints, or None where none waits with
        so many ranks."""
        with self._lock:
            process, output = self._process, self._output
            if (
                ranks != self._ranks
                or process is None
                or output is None
                or process.stdin is None
                or process.poll() is not None
            ):
                return None
            try:
                process.stdin.write(f"{spec.absolute()}\n")
                process.stdin.flush()
            except BrokenPipeError:  # it ended just now
                return None
            return process, output

    def close(self) -> None:
        """End the process; a job that it is doing ends too."""
        with self._lock:
            if self._process is not None:
                stop(self._process)
                self._process = None
