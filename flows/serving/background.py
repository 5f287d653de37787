"""The server and its worker as background processes with log files, for `r3l up` and `r3l down`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from flows import prefect_settings
from flows.own_server import Own, forget, own_server, read_state, remember
from r3l.errors import ConfigError, R3LError
from r3l.store.files.process import lives, mark, read
from r3l.system.child_environment import PYTHON, importable
from r3l.system.ports import refuse_taken

START_S, STOP_S = 240.0, 30.0
REGISTER = Path(__file__).parents[2] / "infra" / "prefect.sh"
R3L = [*PYTHON, "-m", "flows.cli.app"]


class BackgroundError(R3LError):
    """A background process that did not start."""


def up(folder: Path, port: int, begins: Callable[[str], None] = lambda step: None) -> Own:
    """Start what does not run yet: the server, the flows' registration, a worker of the pool `r3l`.

    Args:
        begins: told each of these steps as it begins.

    Raises:
        BackgroundError: one of them did not start; names its log file, and what it said last.
        ConfigError: PREFECT_API_URL names another server, or the port is taken.
    """
    own = own_server(folder)
    if prefect_settings.URL in os.environ and not (own and own.api == os.environ[prefect_settings.URL]):
        raise ConfigError(
            f"{prefect_settings.URL}={os.environ[prefect_settings.URL]} names another server; unset it to start one "
            "here"
        )
    if own is None:
        down(folder)  # a worker whose server has ended
        refuse_taken(port)
        begins("the server starts; with flows and worker: half a minute, on a busy machine two minutes or three")
        server_process = spawn(folder, "server", [*R3L, "server", "--port", str(port)])
        wait(folder, "server", server_process, lambda: answers(own_server(folder)))
    own = own_server(folder)
    if own is None:
        raise BackgroundError(f"the server has ended; see {folder / 'server.log'}")
    for name in (prefect_settings.URL, prefect_settings.CLIENT_KEY, prefect_settings.SERVER_KEY):
        os.environ.pop(name, None)
    prefect_settings.reach(own)
    if not lives(own.processes.get("worker", "")):
        begins("the flows are registered")
        register()
        begins("the worker starts")
        worker = spawn(
            folder, "worker", [str(Path(sys.executable).with_name("prefect")), "worker", "start", "--pool", "r3l"]
        )
        own = Own(own.api, own.key, {**own.processes, "worker": mark(worker.pid)})
        remember(folder, own)
    return own


def register() -> None:
    """Register the flows. Raise `BackgroundError` with what the script said if it failed, or if this is no checkout."""
    if not REGISTER.is_file():
        raise BackgroundError(f"{REGISTER} is not there: deployments are registered from a checkout of the project")
    environment = prefect_settings.loud() | {"VENV": sys.prefix}
    script = subprocess.run(["bash", str(REGISTER)], env=environment, capture_output=True, text=True, check=False)
    if script.returncode:
        raise BackgroundError(f"registering the flows failed: {(script.stderr or script.stdout)[-2000:].strip()}")


def spawn(folder: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, which outlives this one; what it says goes to ``<name>.log``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("w") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=importable(prefect_settings.loud()),
        )


def wait(folder: Path, name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    end = time.monotonic() + START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            last_words = (folder / f"{name}.log").read_text(errors="replace")[-1000:].strip()
            raise BackgroundError(f"the {name} did not start; {folder / f'{name}.log'} ends with:\n{last_words}")
        time.sleep(0.2)


def answers(own: Own | None) -> bool:
    """Tell whether the server takes its key."""
    if own is None:
        return False
    user, _, password = own.key.partition(":")
    try:
        return httpx.get(f"{own.api}/admin/version", auth=(user, password), timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def down(folder: Path) -> list[str]:
    """Stop worker and server, the worker first. The result is the names of those that ran."""
    own = read_state(folder)
    if own is None:
        return []
    ran = [name for name in ("worker", "server") if lives(own.processes.get(name, ""))]
    for name in ran:
        stop(own.processes[name])
    forget(folder)
    return ran


def stop(mark_: str) -> None:
    """End a process and its children: SIGTERM, and SIGKILL where it lives on for half a minute."""
    process = read(mark_)
    assert process is not None, mark_  # it lives, so it is a mark
    for number, patience in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
        os.killpg(os.getpgid(process.pid), number)
        end = time.monotonic() + patience
        while lives(mark_) and time.monotonic() < end:
            time.sleep(0.1)
        if not lives(mark_):
            return
