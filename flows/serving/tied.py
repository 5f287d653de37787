"""An ephemeral Prefect server, tied to the process that started it: it ends with that process, however that one ends. A
Ctrl-C for the run does not end it, because the run still reports its final state.

Prefect can start such a server too, but imports the server's code into the run for that, which takes a second and a
half. Here the run gets the server's address before it imports Prefect, and loads the client alone.

`python -m flows.serving.tied ARGUMENTS` is uvicorn in a process that watches its launcher.
"""

import atexit
import os
import runpy
import subprocess
import time
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

from flows.prefect_settings import STARTUP_TIMEOUT, URL, server_is_named
from r3l.errors import ServerAway
from r3l.store.files.process import mark
from r3l.system.child_environment import PYTHON, importable
from r3l.system.home import PACKAGE
from r3l.system.memory import collect_less
from r3l.system.ports import free_port
from r3l.training.parallel.launcher import LAUNCHER, end_with_launcher

LOOK_S = 0.1
ADVICE = "start one with `r3l up`, or use --direct, which needs none"


@dataclass
class Server:
    """The server of this process: its API's address and its process."""

    api: str
    process: subprocess.Popen[Any]


_server: Server | None = None


def begin() -> None:
    """Start the server, unless one is named, beside what this process does before it needs one: the start takes
    seconds. Its address is in the environment from now on, where Prefect finds it as it is imported."""
    global _server
    if not server_is_named():
        port = free_port()
        _server = Server(f"http://127.0.0.1:{port}/api", start_server(port))
        os.environ[URL] = _server.api
        atexit.register(_server.process.terminate)


def has_begun() -> bool:
    """Tell whether this process has a server of its own."""
    return _server is not None


def is_tied(api: str | None) -> bool:
    """Tell whether the address is that of this process's own server."""
    return _server is not None and api == _server.api


def await_server() -> None:
    """Wait until the server of this process answers, if it has one.

    Raises:
        ServerAway: it ended, or does not answer in time.
    """
    if _server is None:
        return
    until = time.monotonic() + float(os.environ[STARTUP_TIMEOUT])
    while not answers(_server.api):
        if (status := _server.process.poll()) is not None:
            raise ServerAway(f"Prefect's server ended with exit code {status} while it started; {ADVICE}")
        if time.monotonic() > until:
            raise ServerAway(f"Prefect's server does not answer after {os.environ[STARTUP_TIMEOUT]} s; {ADVICE}")
        time.sleep(LOOK_S)


def answers(api: str) -> bool:
    try:
        with urlopen(f"{api}/health", timeout=LOOK_S * 20) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def start_server(port: int) -> subprocess.Popen[Any]:
    """Start a server on a port of this machine."""
    environment = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    app = ["--factory", "prefect.server.api.server:create_app", "--lifespan", "on", "--log-level", "error"]
    app += ["--app-dir", str(PACKAGE.parent)]  # by default uvicorn looks for modules in the working folder first
    return subprocess.Popen(
        [*PYTHON, "-m", "flows.serving.tied", *app, "--host", "127.0.0.1", "--port", str(port)],
        env={**importable(os.environ), **environment, LAUNCHER: mark()},
        start_new_session=True,
    )


if __name__ == "__main__":
    end_with_launcher()
    collect_less()
    runpy.run_module("uvicorn", run_name="__main__", alter_sys=True)
