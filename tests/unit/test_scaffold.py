"""`r3l new` writes packages that work as they are: their own tests pass, and r3l plays and credits by them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l.errors import ConfigError
from r3l.scaffold.package import write_package

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("what", "name"), [("environment", "word_game"), pytest.param("method", "ranks", marks=pytest.mark.slow)]
)
def test_the_package_passes_its_own_test(what, name, tmp_path):
    folder = write_package(what, name, tmp_path)
    about = tomllib.loads((folder / "pyproject.toml").read_text())
    points = about["project"]["entry-points"][f"r3l.{what}s"]
    assert list(points) == [name]
    module, _, _ = points[name].partition(":")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["pyproject.toml", f"{module}.py", f"test_{name}.py"]
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}.py"], cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{folder}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "1 passed" in done.stdout
    for command in (
        ["ruff", "check", "--isolated", "--select", "E,F,I,UP,B", "--line-length", "120"],
        ["ruff", "format", "--check", "--isolated", "--line-length", "120"],
    ):
        tidy = subprocess.run([sys.executable, "-m", *command, folder], capture_output=True, text=True, check=False)
        assert tidy.returncode == 0, tidy.stdout


def test_names_that_can_not_be_are_refused(tmp_path):
    for what, name, said in (
        ("engine", "fast", "new engine: expected one of environment, method"),
        ("environment", "My-Game", "expected small letters, digits and single underscores"),
        ("environment", "household", "new environment household: the name is taken"),
        ("method", "paper", "new method paper: the name is taken"),
    ):
        with pytest.raises(ConfigError, match=said):
            write_package(what, name, tmp_path)
    write_package("environment", "mine", tmp_path)
    with pytest.raises(ConfigError, match="r3l-mine exists already"):
        write_package("environment", "mine", tmp_path)


def test_the_command_says_what_to_do_next(tmp_path):
    app = app_of(["new", "prepare"])
    done = CliRunner().invoke(app, ["new", "environment", "mine", "--into", str(tmp_path)])
    assert done.exit_code == 0, done.output
    said = done.output.replace("\n", "")
    assert "r3l_mine.py" in said
    assert f"pip install -e {tmp_path}/r3l-mine" in said
    assert "iterate --run try --environment mine" in said
