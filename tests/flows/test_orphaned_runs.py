"""What SIGKILL leaves behind: an ephemeral server ends by itself, and the next run ends the dead runs in Prefect's
database."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.runtime import flow_run
from prefect.states import Running

from flows.cancellation import GONE, LABEL, run_attended
from r3l.errors import ServerAway
from r3l.store.files.process import mark, start_time
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
        return run_attended(lambda: 7)

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


@pytest.fixture
def tied(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """flows.serving.tied in a process without a server; what it starts is asked for and not run."""
    from flows.serving import tied

    def started_process(command: list[str], **how: Any) -> SimpleNamespace:
        return SimpleNamespace(command=command, how=how, poll=lambda: None, terminate=lambda: None)

    monkeypatch.setattr(tied, "_server", None)
    monkeypatch.setattr(tied, "server_is_named", lambda: "PREFECT_API_URL" in os.environ)
    monkeypatch.setattr(tied.subprocess, "Popen", started_process)
    monkeypatch.setenv("PREFECT_API_URL", "")  # put back in the end
    monkeypatch.delenv("PREFECT_API_URL")
    return tied


def test_the_ephemeral_server_is_started_in_a_session_of_its_own_under_a_watch(tied: ModuleType) -> None:
    tied.begin()
    server = tied._server
    tied.begin()
    assert tied._server is server, "one is enough"
    command, how = server.process.command, server.process.how
    assert command[1:4] == ["-P", "-m", "flows.serving.tied"]
    assert server.api == os.environ["PREFECT_API_URL"] == f"http://127.0.0.1:{command[-1]}/api"
    assert how["start_new_session"]
    assert how["env"]["R3L_LAUNCHER"] == mark()
    assert tied.is_tied(server.api)
    assert not tied.is_tied("http://prefect:4200/api")


def test_no_server_is_started_beside_one_that_is_named(tied: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect:4200/api")
    tied.begin()
    tied.await_server()
    assert not tied.has_begun()
    assert not tied.is_tied("http://prefect:4200/api")


@pytest.mark.parametrize(
    ("status", "message"), [(None, "does not answer after 0.3 s"), (3, "ended with exit code 3 while it started")]
)
def test_a_server_that_does_not_start_ends_the_command_with_what_to_do(tied, monkeypatch, status, message):
    monkeypatch.setenv(tied.STARTUP_TIMEOUT, "0.3")
    tied.begin()
    tied._server.process.poll = lambda: status
    with pytest.raises(ServerAway, match=message) as raised:
        tied.await_server()
    assert "r3l up" in str(raised.value)


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
    while start_time(server) and time.monotonic() < until:
        time.sleep(0.05)
    assert not start_time(server)
