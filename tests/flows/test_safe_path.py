"""Started in a folder whose modules are somebody else's, no process of r3l runs one of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from flows import prefect_settings
from flows.serving import background, tied
from r3l.audit.web.sandbox import Asked
from r3l.config.environments import HouseholdSettings
from r3l.environments.kinds import make_world
from r3l.environments.math.grader import GraderProcess
from r3l.environments.workers.pool import WorldPool
from r3l.pipeline.tracking.feed import run_tracker
from r3l.pipeline.update.output import begin_process
from r3l.system.child_environment import PYTHON
from r3l.training.parallel import nodes

ROOT = Path(__file__).parents[2]
R3L = str(Path(sys.executable).with_name("r3l"))
# fmt: off
NAMES = [
    "ast", "asyncio", "dataclasses", "duckdb", "fastapi", "flows", "httpx", "json", "logging", "math_verify",
    "multiprocessing", "numpy", "prefect", "psutil", "pyarrow", "pydantic", "r3l", "random", "rich", "scienceworld",
    "sitecustomize", "sqlite3", "subprocess", "tomllib", "torch", "transformers", "typer", "typing", "uvicorn", "vllm",
]
# fmt: on
LOGGING = {"version": 1, "formatters": {"theirs": {"()": "os.system", "command": "touch RAN"}}}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of this test: what of it is run, notes its name."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    (folder / "theirs.yml").write_text(str(LOGGING).replace("RAN", str(tmp_path / "ran")))
    (folder / ".env").write_text("PREFECT_LOGGING_SETTINGS_PATH=theirs.yml\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    return folder


def nothing_ran(hostile: Path) -> None:
    ran = hostile.parent / "ran"
    assert not ran.exists(), ran.read_text()


def done(*words: str, code: int = 0, **options: object) -> str:
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=250, **options)  # type: ignore[call-overload]
    assert ended.returncode == code, ended.stderr[-3000:]
    return str(ended.stdout)


def test_the_folder_would_run_what_is_started_without_care(hostile: Path) -> None:
    done(sys.executable, "-c", "import tomllib")
    assert (hostile.parent / "ran").read_text() == "tomllib "


def test_the_command_runs_none_of_them(hostile: Path) -> None:
    assert "sample" in done(R3L, "runs", "--store", str(ROOT / "data" / "sample_run"))
    nothing_ran(hostile)


def worker() -> None:
    settings = HouseholdSettings(train_tasks=1)
    with WorldPool(settings, workers=1) as pool:
        assert pool.start("one", make_world(settings).tasks("train")[0]).result(100).text


def grader() -> None:
    process = GraderProcess(1.0, "reasoning_gym")
    process.await_ready()
    process.stop()


def sandbox() -> None:
    process = Asked(str(ROOT / "data" / "sample_run"), None, 1 << 30)
    assert process.ask("SELECT 42 AS n", 1, 60).rows == [(42,)]
    process.stop()


def update() -> None:
    process = begin_process(nodes.command(Path("absent.json"), 1), subprocess.DEVNULL)
    assert "absent.json" in process.communicate(timeout=250)[0]


def tracker() -> None:
    assert "missing 4 required" in run_tracker([*PYTHON, "-m", "r3l.pipeline.tracking", "not_there"], 60)


def in_the_background() -> None:
    process = background.spawn(Path("logs"), "one", [sys.executable, "-c", "import json, typing"])
    assert process.wait(60) == 0


@pytest.mark.parametrize("start", [
    worker,
    sandbox,
    in_the_background,
    *(pytest.param(one, marks=pytest.mark.slow) for one in (grader, update, tracker)),
])  # fmt: skip
def test_a_process_that_it_starts_runs_none_of_them(hostile: Path, start: Callable[[], None]) -> None:
    start()
    nothing_ran(hostile)


@pytest.mark.slow
def test_the_server_of_a_run_runs_none_of_them(hostile: Path) -> None:
    port = tied.free_port()
    with patch.dict(os.environ):
        os.environ.pop("PREFECT_LOGGING_SETTINGS_PATH", None)
        prefect_settings.apply()  # as each command does
        server = tied.start_server(port)
    try:
        until = time.monotonic() + 240
        while not tied.answers(f"http://127.0.0.1:{port}/api"):
            assert server.poll() is None
            assert time.monotonic() < until
    finally:
        server.terminate()
        server.wait(30)
    nothing_ran(hostile)


@pytest.mark.slow
def test_an_iteration_and_its_checks_run_none_of_them(hostile: Path) -> None:
    store = str(hostile.parent / "store")
    small = ["--set", "rollout.tasks=2", "--set", "rollout.group_size=4", "--environment", "household"]
    given = [*small, "--policy", "household", "--store", store, "--quiet"]
    done(R3L, "iterate", "--run", "mine", *given, env={**os.environ, "R3L_HOME": str(ROOT)})
    done(R3L, "check", "mine", "--store", store)
    nothing_ran(hostile)


def heed_hangups() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


WAITS = "import time; from flows.cli import app; app.end_on_hangup(); print('up', flush=True); time.sleep(60)"


@pytest.mark.parametrize(("before", "ends"), [([], True), (["nohup"], False)])
def test_a_closed_terminal_ends_a_command_as_sigterm_does_but_not_under_nohup(before: list[str], ends: bool) -> None:
    command = [*before, sys.executable, "-c", WAITS]
    # the suite itself may run under nohup, which its children inherit
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, preexec_fn=heed_hangups) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGHUP)
        if ends:
            assert process.wait(10) == -signal.SIGTERM
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.kill()
