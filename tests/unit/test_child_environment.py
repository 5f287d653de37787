"""What a credential's owner started must not be read by what a model wrote: child processes get variables by name."""

from pathlib import Path

import pytest

from r3l.config.environments import HouseholdSettings
from r3l.environments.math.grader import Grader
from r3l.environments.workers.pool import WorldPool
from r3l.system.child_environment import child_environment

PLANTED = {"AWS_SECRET_ACCESS_KEY": "planted-1", "PREFECT_API_AUTH_STRING": "planted-2", "R3L_AUDIT_KEY": "planted-3"}


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def test_credentials_stay_and_what_a_child_needs_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")  # or the trainer would compute in other bits than the engine
    found = child_environment({"EXTRA": "1"})
    assert not set(PLANTED) & set(found)
    assert (found["CUDA_VISIBLE_DEVICES"], found["ATEN_CPU_CAPABILITY"], found["EXTRA"]) == ("3", "avx2", "1")
    assert "PATH" in found


def test_a_variable_that_is_named_goes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R3L_PASS", "GAME_LICENCE, OTHER")
    monkeypatch.setenv("GAME_LICENCE", "x")
    assert child_environment()["GAME_LICENCE"] == "x"


def test_an_environment_worker_has_no_credential() -> None:
    with WorldPool(HouseholdSettings(train_tasks=1), workers=1) as pool:
        seen = environment_of(pool.workers[0].process.pid)
    assert "planted" not in seen
    assert "PYTHONPATH" in seen


def test_a_grader_has_no_credential() -> None:
    grader = Grader(1.0)
    grader.start()
    try:
        assert "planted" not in environment_of(grader.free[0].process.pid)
    finally:
        grader.stop()
