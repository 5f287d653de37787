"""Prefect's ephemeral server, tied to the process that started it: it ends with that process, however it ends. A Ctrl-C
for the run does not end it, because the run still reports its final state.

`python -m flows.serving.tied ARGUMENTS` is uvicorn in a process that watches its launcher.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from typing import Any

from r3l.store.files.process import mark
from r3l.training.parallel.launcher import LAUNCHER, end_with_launcher


def tie() -> None:
    """Have Prefect start its ephemeral server in that way from now on. A server that is named is left alone."""
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import get_current_settings

    def start(server: SubprocessASGIServer) -> subprocess.Popen[Any]:
        environment = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
        settings = get_current_settings().to_environment_variables(exclude_unset=True)
        app = ["--factory", "prefect.server.api.server:create_app", "--lifespan", "on", "--log-level", "error"]
        return subprocess.Popen(
            [sys.executable, "-m", "flows.serving.tied", *app, "--host", "127.0.0.1", "--port", str(server.port)],
            env={**os.environ, **environment, **settings, LAUNCHER: mark()},
            start_new_session=True,
        )

    SubprocessASGIServer._run_uvicorn_command = start  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    end_with_launcher()
    runpy.run_module("uvicorn", run_name="__main__", alter_sys=True)
