"""A worker's warm process: it has imported what a flow run needs, and forks one for each that asks, so that the runs of
a schedule begin without those imports.

It ends with the worker, and when a file that it has loaded changes. It runs no Python thread beside its own and has no
GPU open, since a fork inherits neither. The native threads that numpy and pyarrow start as they are imported, of
OpenBLAS and jemalloc, prepare for forks themselves.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from prefect.context import refresh_global_settings_context

from flows.serving.flow_run import ENGINE, FORKED, STATUS_BYTES, lock_of, owner_of, short
from r3l.store.files.process import mark
from r3l.system.home import PACKAGE
from r3l.training.parallel.launcher import LAUNCHER, end_with_launcher

LOADED = (
    "prefect.flow_engine",
    "prefect.task_engine",
    "prefect.deployments.steps.core",
    "flows.iterate",
    "flows.train",
    "torch",
    "r3l.engines.embedded.engine",
)
OF_ONE_RUN = "PREFECT__"  # how the names of those variables begin that each flow run has of its own
OWN = (PACKAGE, PACKAGE.parent / "flows")
FLOW_RUN = f"{OF_ONE_RUN}FLOW_RUN_ID"
REQUEST_BYTES = 1 << 20


class Run(NamedTuple):
    """A flow run that was forked: its process, the pidfd of it, and the line to the command that waits for its end."""

    pid: int
    handle: int
    line: socket.socket


def main(where: Path, worker: int, lock: int) -> None:
    """Fork flow runs until the worker ends; in each fork, be the engine.

    Args:
        where: the socket to listen on.
        worker: process of the worker.
        lock: open file whose lock keeps the worker's warm process the only one.
    """
    end_of_worker = os.pidfd_open(worker)
    for name in LOADED:
        with suppress(ModuleNotFoundError):  # a host whose flow runs sample at a server has no torch
            importlib.import_module(name)
    if why := unfit():
        where.write_text(f"flow runs are not forked: {why}")  # in the socket's place: no other is started
        sys.exit(where.read_text())
    with listening(where) as door:
        asked = Warm(door, where, end_of_worker, lock).serve()
    if asked:
        be_engine(asked)


def unfit() -> str:
    """Say why this process may not fork; empty: it may."""
    if (threads := threading.active_count()) > 1:
        return f"{threads} threads run, and a fork has one"
    devices = [opened for opened in map(target, Path("/proc/self/fd").iterdir()) if opened.startswith("/dev/nvidia")]
    return f"{devices[0]} is open, and a fork can't use it" if devices else ""


def target(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:  # the folder's own, which was open while it was listed
        return ""


def listening(where: Path) -> socket.socket:
    """Listen on a socket that only this user may connect to."""
    door, before = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), os.umask(0o177)
    where.unlink(missing_ok=True)  # of one that was killed: this process has the lock
    door.bind(short(where))
    os.umask(before)
    door.listen()
    return door


class Warm:
    """What a warm process does once everything is imported."""

    def __init__(self, door: socket.socket, where: Path, end_of_worker: int, lock: int) -> None:
        self.door, self.where, self.end_of_worker, self.lock = door, where, end_of_worker, lock
        self.environment, self.loaded = shared(os.environ), stamps()
        self.runs: dict[int, Run] = {}  # by pidfd and by line
        self.events, self.open = select.poll(), True
        self.events.register(door, select.POLLIN)
        self.events.register(end_of_worker, select.POLLIN)

    def serve(self) -> dict[str, Any] | None:
        """Fork a flow run for each request.

        Returns:
            In a fork, the request; None when the worker has ended or a file has changed, and all forks have ended.
        """
        while self.open or self.runs:
            ready = self.events.poll()[0][0]  # one at a time: what it does may end another, and its number be reused
            if run := self.runs.get(ready):
                self.ended(run) if ready == run.handle else self.heard(run)
            elif ready == self.end_of_worker:
                self.events.unregister(ready)
                self.shut()
            elif asked := self.answer(self.door.accept()[0]):
                return asked
        return None

    def answer(self, line: socket.socket) -> dict[str, Any] | None:
        """Fork the flow run that is asked for, or refuse. The result is the request in the fork, and None here."""
        if any(changed(path) != when for path, when in self.loaded.items()):
            self.shut()
        message, files, _, _ = socket.recv_fds(line, REQUEST_BYTES, 3)
        asked = json.loads(message) if message else {"environment": {}}
        # The variables must be those that this process was started with: what it has imported may have read them.
        if self.open and owner_of(line) == os.getuid() and shared(asked["environment"]) == self.environment:
            if (pid := os.fork()) == 0:
                for number, file in enumerate(files):
                    os.dup2(file, number)
                for one in (self.door, line, *(run.line for run in self.runs.values())):
                    one.close()
                os.close(self.lock)
                return cast(dict[str, Any], asked)
            self.watch(Run(pid, os.pidfd_open(pid), line))
            sys.stderr.write(f"forked process {pid} for flow run {asked['environment'].get(FLOW_RUN)}\n")
        else:
            line.close()
        for file in files:
            os.close(file)
        return None

    def watch(self, run: Run) -> None:
        """Hear of a run's end, and of what its command says."""
        for file in (run.handle, run.line.fileno()):
            self.runs[file] = run
            self.events.register(file, select.POLLIN)
        with suppress(ConnectionError):
            run.line.send(FORKED)

    def heard(self, run: Run) -> None:
        """Send a run the signal that its command got; a command that was killed takes its run with it."""
        try:
            number = run.line.recv(1)
        except ConnectionError:
            number = b""
        if not number:
            self.events.unregister(run.line)
        signal.pidfd_send_signal(run.handle, number[0] if number else signal.SIGKILL)

    def ended(self, run: Run) -> None:
        """Tell a run's command how it ended."""
        _, status = os.waitpid(run.pid, 0)
        for file in (run.handle, run.line.fileno()):
            del self.runs[file]
            with suppress(KeyError):
                self.events.unregister(file)
        os.close(run.handle)
        with suppress(ConnectionError), run.line:
            run.line.send(status.to_bytes(STATUS_BYTES, "big"))

    def shut(self) -> None:
        """Fork no further run."""
        if self.open:
            self.open = False
            self.events.unregister(self.door)
            self.door.close()
            for path in (self.where, lock_of(self.where)):
                path.unlink(missing_ok=True)
            os.close(self.lock)


def shared(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out the variables that each flow run has of its own."""
    return {name: value for name, value in environment.items() if not name.startswith(OF_ONE_RUN)}


def stamps() -> dict[str, int]:
    """Read when each file was changed that was imported, or that belongs to this project's packages and may have been
    read."""
    own = (str(path) for package in OWN for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    loaded = (module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None))
    return {path: changed(path) for path in (*own, *loaded) if path}


def changed(path: str) -> int:
    """Read when a file was changed, in nanoseconds; 0: it is gone."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def be_engine(asked: dict[str, Any]) -> None:
    """Be Prefect's engine, as a process that was started for this flow run would be."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.environ[LAUNCHER] = mark(os.getppid())
    end_with_launcher()  # its command hears of its end from the warm process alone
    del os.environ[LAUNCHER]
    os.chdir(asked["folder"])
    refresh_global_settings_context()  # Prefect has read the warm process's
    sys.argv = [ENGINE]
    runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
