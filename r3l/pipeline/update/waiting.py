"""A process of the update that starts before there is a job, so that its imports are done by then, and that does one
job after another."""

import subprocess
import threading
from pathlib import Path

from r3l.pipeline.update.output import Output, begin_process, stop
from r3l.system.child_environment import PYTHON
from r3l.training.parallel.nodes import several

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
