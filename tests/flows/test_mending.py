"""What SIGKILL leaves behind: an ephemeral server ends by itself, and the next run ends the dead runs in Prefect's
database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.runtime import flow_run
from prefect.states import Running

from flows.ending import attended
from flows.mending import GONE, LABEL
from r3l.store.files.process import mark, started
from r3l.training.parallel.launcher import LEFT_ALONE


def dead_mark() -> str:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = mark(process.pid)
    return found


@pytest.fixture
def left_behind(prefect_server: None) -> dict[str, UUID]:
    """Running flow runs, as dead and living processes leave them: by whose they are."""

    @flow
    def work() -> None: ...

    marks = {"dead": dead_mark(), "living": mark(), "unknown": ""}
    with get_client(sync_client=True) as client:
        found = {}
        for name, its in marks.items():
            run = client.create_flow_run(work, state=Running())
            if its:
                client.update_flow_run_labels(run.id, {LABEL: its})
            found[name] = run.id

        @task(cache_policy=NO_CACHE)
        def step() -> None: ...

        client.create_task_run(step, found["dead"], dynamic_key="0", state=Running())
    return found


def test_the_next_run_ends_those_whose_process_is_gone_and_no_others(left_behind: dict[str, UUID]) -> None:
    seen: dict[str, Any] = {}

    @flow
    def next_one() -> int:
        seen["id"] = flow_run.id
        return attended(lambda: 7)

    assert next_one() == 7
    with get_client(sync_client=True) as client:
        states = {name: client.read_flow_run(id_).state for name, id_ in left_behind.items()}
        of_it = FlowRunFilter(id=FlowRunFilterId(any_=[left_behind["dead"]]))
        [task_run] = client.read_task_runs(flow_run_filter=of_it)
        assert client.read_flow_run(UUID(seen["id"])).labels[LABEL] == mark()
    assert (states["dead"].type.value, states["dead"].message) == ("CRASHED", GONE)  # type: ignore[union-attr]
    assert states["living"].is_running()  # type: ignore[union-attr]
    assert states["unknown"].is_running()  # type: ignore[union-attr]
    assert task_run.state is not None
    assert task_run.state.is_crashed()


def test_the_ephemeral_server_is_started_in_a_session_of_its_own_under_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.server.api.server import SubprocessASGIServer

    from flows.serving.tied import tie

    asked: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(SubprocessASGIServer, "_run_uvicorn_command", SubprocessASGIServer._run_uvicorn_command)
    monkeypatch.setattr("flows.serving.tied.subprocess.Popen", lambda command, **how: asked.append((command, how)))
    tie()
    SubprocessASGIServer._run_uvicorn_command(SimpleNamespace(port=4711))  # type: ignore[arg-type]
    [(command, how)] = asked
    assert command[1:3] == ["-m", "flows.serving.tied"]
    assert command[-2:] == ["--port", "4711"]
    assert how["start_new_session"]
    assert how["env"]["R3L_LAUNCHER"] == mark()


@pytest.mark.parametrize("lives", [True, False])
def test_a_server_that_was_started_before_prefect_was_imported_is_taken_while_it_lives(
    monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    from prefect.server.api.server import SubprocessASGIServer

    from flows.serving import tied

    asked: list[SimpleNamespace] = []

    def started_process(command: list[str], **how: Any) -> SimpleNamespace:
        asked.append(SimpleNamespace(port=int(command[-1]), poll=lambda: None if lives else 1, terminate=lambda: None))
        return asked[-1]

    monkeypatch.setattr(SubprocessASGIServer, "_run_uvicorn_command", SubprocessASGIServer._run_uvicorn_command)
    monkeypatch.setattr(tied, "_ahead", None)
    monkeypatch.setattr(tied.subprocess, "Popen", started_process)
    tied.begin()
    tied.begin()  # one is enough
    tied.tie()
    servers: list[Any] = [SimpleNamespace(port=4711), SimpleNamespace(port=4712)]
    taken = [SubprocessASGIServer._run_uvicorn_command(server) for server in servers]
    ahead, *later = asked
    if lives:
        assert (taken[0], servers[0].port) == (ahead, ahead.port)
        assert [one.port for one in later] == [4712]
    else:
        assert [one.port for one in later] == [4711, 4712]


def test_a_tied_server_whose_launcher_is_gone_before_it_began_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("print('served')")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "R3L_LAUNCHER": dead_mark(),
    }
    command = [sys.executable, "-m", "flows.serving.tied"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (LEFT_ALONE, "")


def test_a_tied_server_ends_soon_after_its_launcher_was_killed(tmp_path: Path) -> None:
    """uvicorn's place is taken by a module that says its number and waits."""
    (tmp_path / "uvicorn.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    launching = """
import os, subprocess, sys
from r3l.store.files.process import mark
environment = os.environ | {"R3L_LAUNCHER": mark()}
subprocess.run([sys.executable, "-m", "flows.serving.tied"], env=environment, start_new_session=True)
"""
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}
    with subprocess.Popen(
        [sys.executable, "-c", launching], stdout=subprocess.PIPE, text=True, env=environment
    ) as launcher:
        assert launcher.stdout is not None
        server = int(launcher.stdout.readline())
        os.kill(launcher.pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while started(server) and time.monotonic() < until:
        time.sleep(0.05)
    assert not started(server)
