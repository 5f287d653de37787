"""The `r3l` command, each time in a process of its own that begins with its imports done: a fork of one that has them.

`python -m tests.support.command` is that process. It reads a line of JSON per command, and answers with a line.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

# What commands import sooner or later. Prefect is not among them: whether a command loads it is asked.
PRELOADED = (
    "flows.cli.app",
    "flows.cli.commands.tables",
    "flows.cli.commands.look",
    "flows.cli.commands.prepare",
    "r3l.pipeline.preflight",
)
LIMIT_S = 120.0


class Said(NamedTuple):
    """What a command printed, its exit code, and whether it had loaded Prefect when it ended."""

    returncode: int
    stdout: str
    stderr: str
    loaded_prefect: bool


class Commands:
    """A process that forks, and the commands that it is asked for."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def run(self, *arguments: str, **environment: str) -> Said:
        """Run ``r3l ARGUMENTS`` with these variables beside those of this process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"arguments": arguments, "environment": dict(os.environ) | environment, "folder": str(Path.cwd())}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return Said(**json.loads(self.process.stdout.readline()))


@contextmanager
def forking() -> Iterator[Commands]:
    """Start the process, and end it with the block."""
    command = [sys.executable, "-m", "tests.support.command"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Commands(process)
        assert process.stdin is not None
        process.stdin.close()


def answered(asked: dict[str, Any]) -> Said:
    """Play a command in a fork. What it says goes to files, as a pipe would be full at some point."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = os.fork()
        if child == 0:
            try:
                play(asked, folder)
            finally:
                os._exit(70)
        until = time.monotonic() + LIMIT_S
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        out, err, loaded = (
            path.read_text() if (path := folder / name).exists() else "" for name in ("out", "err", "loaded")
        )
    return Said(os.waitstatus_to_exitcode(ended[1]), out, err, loaded == "True")


def play(asked: dict[str, Any], folder: Path) -> None:
    """Be the command: in the child. Never returns."""
    from flows.cli.app import main

    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = ["r3l", *asked["arguments"]]
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    finally:
        (folder / "loaded").write_text(str("prefect" in sys.modules))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def serve() -> None:
    """Answer one command after another."""
    answers = os.fdopen(os.dup(1), "w")  # what an import prints goes elsewhere
    os.dup2(2, 1)
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        answers.write(json.dumps(answered(json.loads(line))._asdict()) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
