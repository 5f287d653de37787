"""Prefect's ephemeral server, tied to the process that started it: it ends with that process, however it ends. A Ctrl-C
for the run does not end it, because the run still reports its final state.

`python -m flows.serving.tied ARGUMENTS` is uvicorn in a process that watches its launcher.
"""

from __future__ import annotations

import atexit
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from r3l.ports import free_port
from r3l.store.files.process import mark
from r3l.training.parallel.launcher import LAUNCHER, end_with_launcher


@dataclass
class Ahead:
    """A server that was started before Prefect was imported, and that Prefect has not asked for yet."""

    port: int
    process: subprocess.Popen[Any]


_ahead: Ahead | None = None


def begin() -> None:
    """Start the server now, beside what this process does before it needs one: it takes seconds. Prefect is not
    imported."""
    global _ahead
    if _ahead is None:
        _ahead = Ahead(port := free_port(), served(port))
        atexit.register(_ahead.process.terminate)  # also where nothing asks for it


def tie() -> None:
    """Have Prefect start its ephemeral server in that way from now on, or take the one that `begin` has started. A
    server that is named is left alone."""
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import get_current_settings

    def start(server: SubprocessASGIServer) -> subprocess.Popen[Any]:
        global _ahead
        ahead, _ahead = _ahead, None
        if ahead is not None and ahead.process.poll() is None:
            server.port = ahead.port
            return ahead.process
        assert server.port is not None
        return served(server.port, get_current_settings().to_environment_variables(exclude_unset=True))

    SubprocessASGIServer._run_uvicorn_command = start  # type: ignore[method-assign,assignment]


def served(port: int, settings: Mapping[str, str] | None = None) -> subprocess.Popen[Any]:
    """Start a server on a port of this machine.

    Args:
        settings: of Prefect, beside those of the environment and the profile.
    """
    environment = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    app = ["--factory", "prefect.server.api.server:create_app", "--lifespan", "on", "--log-level", "error"]
    return subprocess.Popen(
        [sys.executable, "-m", "flows.serving.tied", *app, "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, **environment, **(settings or {}), LAUNCHER: mark()},
        start_new_session=True,
    )


if __name__ == "__main__":
    end_with_launcher()
    runpy.run_module("uvicorn", run_name="__main__", alter_sys=True)
