"""The example of a plug-in, as a stranger has it: an installed package beside the installed wheel, and no checkout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.installed import clean, fresh_environment, run

EXAMPLE = Path(__file__).parents[1] / "example_plugin"
SMALL = ["environment.workers=1", "rollout.tasks=2", "rollout.group_size=4", "training.processes=0"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_an_installed_world_and_player_are_iterated_evaluated_and_checked(wheel, tmp_path):
    source, person, empty = tmp_path / "guess", tmp_path / "person", tmp_path / "empty"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    person.mkdir()
    empty.mkdir()
    programs = fresh_environment(tmp_path / "environment", wheel, source)
    environment = clean(person, programs)

    def r3l(*words: str) -> str:
        return run(programs / "r3l", *words, cwd=empty, env=environment).stdout

    settings = [word for assignment in SMALL for word in ("--set", assignment)]
    done = r3l("iterate", "--run", "g", "--environment", "guess", "--engine", "guess_player", "--json", *settings)
    figures = json.loads(done.splitlines()[-1])
    assert figures["stepped"]
    assert figures["retry_success"] == 1  # told to halve, the player halves
    found = json.loads(r3l("evaluate", "g", "--benchmark", "guess/small", "--tasks", "2", "--json").splitlines()[-1])
    assert (found["benchmark"], found["episodes"], found["broken"]) == ("guess/small", 2, [])
    assert r3l("check", "g").strip() == "g: ok"
    asked = r3l("sql", "SELECT DISTINCT environment, task_type FROM tasks", "--run", "g", "--json")
    assert json.loads(asked) == {"environment": "guess", "task_type": "number"}
    assert "guess (r3l-guess 0.1)" in r3l("presets")
    assert list(empty.iterdir()) == []
