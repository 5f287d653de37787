"""The example of a plug-in, as a stranger has it: an installed package beside the installed wheel, and no checkout."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.installed import clean, fresh_environment, run

EXAMPLE = Path(__file__).parents[1] / "example_plugin"
GUESS = {
    "run": "g",
    "environment": "guess",
    "engine": "guess_player",
    "settings": {
        **{"environment.workers": 1, "rollout.tasks": 8, "rollout.group_size": 4},
        **{"training.processes": 0, "training.learning_rate": 0.002},
    },
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_an_installed_player_learns_an_installed_game_and_is_evaluated_and_checked(wheel, tmp_path):
    source, person, empty = tmp_path / "guess", tmp_path / "person", tmp_path / "empty"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    person.mkdir()
    empty.mkdir()
    programs = fresh_environment(tmp_path / "environment", wheel, source)
    environment = clean(person, programs)

    def r3l(*words: str) -> str:
        return run(programs / "r3l", *words, cwd=empty, env=environment).stdout

    code = f"import r3l; config = r3l.compose(**{GUESS!r}); r3l.train(config, 5)"
    run(programs / "python", "-c", code, cwd=empty, env=environment)
    asked = r3l("sql", "SELECT base_success, retry_success FROM iterations ORDER BY iteration", "--run", "g", "--json")
    curve = [json.loads(line) for line in asked.splitlines()]
    held_out = json.loads(r3l("evaluate", "g", "--repeats", "3", "--tasks", "8", "--json").splitlines()[-1])
    assert len(curve) == 5
    assert {row["retry_success"] for row in curve} == {1}, "told to halve, the player halves"
    assert curve[0]["base_success"] < 0.4, "the starting policy, on numbers to train on"
    assert held_out["rate"] >= 0.7, "after five steps, on numbers that it never saw"

    settings = [word for name, value in GUESS["settings"].items() for word in ("--set", f"{name}={value}")]
    done = r3l("iterate", "--run", "g", "--environment", "guess", "--engine", "guess_player", "--json", *settings)
    figures = json.loads(done.splitlines()[-1])
    assert (figures["iteration"], figures["retry_success"]) == (5, 1)
    found = json.loads(r3l("evaluate", "g", "--benchmark", "guess/small", "--tasks", "2", "--json").splitlines()[-1])
    assert (found["benchmark"], found["episodes"], found["broken"]) == ("guess/small", 2, [])
    assert r3l("check", "g").strip() == "g: ok"
    asked = r3l("sql", "SELECT DISTINCT environment, task_type FROM tasks", "--run", "g", "--json")
    assert json.loads(asked) == {"environment": "guess", "task_type": "number"}
    assert "guess (r3l-guess 0.1)" in r3l("presets")
    assert list(empty.iterdir()) == []
