"""The command that a worker starts a flow run with: `python -P -m flows.serving.flow_run`, in the place of
`python -m prefect.engine`.

It has the worker's warm process (`flows/serving/warm.py`) fork the flow run, passes signals on to it, and ends as it
ends. Where that process does not run yet or refuses, this process is the flow run itself, and one is started for the
next.
"""

import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from flows import prefect_settings
from r3l.store.files.process import mark
from r3l.system.child_environment import PYTHON
from r3l.system.visible import visible

ENGINE, WARM = "prefect.engine", "flows.serving.warm"
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
FORKED = b"forked"
STATUS_BYTES = 4


def main() -> None:
    """Be a flow run, forked or not. This function returns to nobody: the process ends, or becomes the engine."""
    with suppress(PermissionError):  # it leads a session, so it is in no worker's group
        os.setpgid(0, 0)  # what is sent to the worker's group is for the worker, which ends its flow runs itself
    if sys.platform == "linux" and os.getppid():
        where = socket_of(mark(os.getppid()))
        if (status := forked(where)) is not None:
            end_as(status)
        try:
            start_warm(where, os.getppid())
        except OSError as error:  # a folder that can't be written to: this flow run needs none
            sys.stderr.write(f"no flow run of this worker is forked: {visible(str(error))}\n")
    os.execv(sys.executable, [*PYTHON, "-m", ENGINE])


def socket_of(worker: str) -> Path:
    """Name the socket of a worker's warm process by the worker's mark."""
    return prefect_settings.prefect_home() / f"warm-{hashlib.sha256(worker.encode()).hexdigest()[:16]}"


def short(path: Path) -> str:
    """Write a socket's path, which may have 107 characters, by its folder, which stays open. Raise OSError where there
    is none."""
    return f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY)}/{path.name}"


def forked(where: Path) -> int | None:
    """Have a flow run forked, and wait for its end.

    Returns:
        Its wait status; None if it was not forked.

    Raises:
        SystemExit: the warm process was killed while it ran.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        try:
            line.connect(short(where))
            if owner_of(line) != os.getuid():  # the request has this process's variables, keys among them
                return None
            asked = json.dumps({"environment": dict(os.environ), "folder": os.getcwd()})
            socket.send_fds(line, [asked.encode()], [0, 1, 2])
            if line.recv(len(FORKED)) != FORKED:
                return None
        except OSError:
            return None
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: line.sendall(bytes([number])))
        status = line.recv(STATUS_BYTES)
    if not status:
        sys.exit("the warm process was killed, and the flow run with it; the next flow run starts another")
    return int.from_bytes(status, "big")


def owner_of(line: socket.socket) -> int:
    """Ask the system which user's process is at the other end."""
    peer = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, uid and gid, of four bytes each
    return int.from_bytes(peer[4:8], sys.byteorder)


def end_as(status: int) -> None:
    """End this process as the flow run ended: with its exit code, or by its signal."""
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.waitstatus_to_exitcode(status))


def start_warm(where: Path, worker: int) -> None:
    """Start the worker's warm process, for the flow runs after this one, unless there is one that is not ready yet, or
    that has found that it may not fork.

    It holds the lock that is taken here. What it says goes to ``warm.log``.
    """
    if where.is_file():  # no socket: it says why not
        return
    where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_of(where).open("w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with (where.parent / "warm.log").open("w") as log:
            subprocess.Popen(
                [*PYTHON, "-m", WARM, str(where), str(worker), str(lock.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock.fileno()],
            )


def lock_of(where: Path) -> Path:
    return where.with_suffix(".lock")


if __name__ == "__main__":
    main()
