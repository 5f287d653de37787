"""Printed commands run as they are pasted: here, with no environment active and one that is, at 80 columns."""

import io
import shlex
import subprocess
import sys

import pytest

from flows.cli.screen.console import CleanConsole
from flows.cli.screen.figures import result
from r3l.pipeline.summary import OF_BASES
from r3l.system import pasted


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A folder with an environment `.venv` that has r3l; none is active."""
    programs = tmp_path / "my work" / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "r3l").write_text('#!/bin/sh\necho ran "$@"\n')
    (programs / "r3l").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return programs


def test_by_its_path_where_no_environment_is_active(environment, monkeypatch):
    monkeypatch.chdir(environment.parents[1])
    assert pasted.r3l("sql", "SELECT 1") == ".venv/bin/r3l sql 'SELECT 1'"
    monkeypatch.chdir("/")
    assert shlex.split(pasted.r3l("down")) == [str(environment / "r3l").removeprefix("/"), "down"]
    monkeypatch.chdir("/usr")
    assert shlex.split(pasted.r3l("down")) == [str(environment / "r3l"), "down"]


def test_by_its_name_where_the_path_leads_to_it(environment, monkeypatch):
    monkeypatch.setenv("PATH", f"{environment}:/usr/bin")
    assert pasted.r3l("down") == "r3l down"
    other = environment.parent / "other"
    other.mkdir()
    (other / "r3l").write_text("#!/bin/sh\n")
    (other / "r3l").chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}:{environment}")
    assert pasted.r3l("down") != "r3l down"  # another installation comes first


def test_commands_in_messages_can_be_pasted(environment, monkeypatch):
    monkeypatch.chdir(environment.parents[1])
    said = pasted.runnable("no games: run `r3l prepare alfworld`, or set r3l aside")
    assert said == "no games: run `.venv/bin/r3l prepare alfworld`, or set r3l aside"


def test_the_questions_of_an_iteration_run_as_they_are_pasted(environment, monkeypatch):
    monkeypatch.chdir(environment.parents[1])
    out = io.StringIO()
    result(
        CleanConsole(file=out, width=80),
        {"run": "demo", "iteration": 0, "store": "data/runs", "stages": {}, "branch": "", "no_step": ""},
    )
    commands = [line.strip() for line in out.getvalue().splitlines() if "SELECT" in line]
    assert len(commands) == len(OF_BASES) >= 3
    for command in commands:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("ran sql SELECT ")
    assert any(len(command) > 80 for command in commands)  # unbroken
