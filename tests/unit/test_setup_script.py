"""infra/setup.sh against stand-ins for Python and uv: what it sets, what it says, and the versions that it installs."""

import os
import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "infra" / "setup.sh"
CONSTRAINTS = ROOT / "infra" / "constraints" / "python311.txt"
STAND_IN = """#!/bin/sh
case "$*" in
  *--version*) echo "Python 3.11" ;;
  "pip install"*) echo "$UV_LOCK_TIMEOUT $*" >> "$CALLS" ;;
esac
"""


@pytest.mark.parametrize(("given", "seconds"), [({}, "3600"), ({"UV_LOCK_TIMEOUT": "20"}, "20")])
def test_another_set_up_that_builds_the_same_is_waited_for_and_that_is_said(tmp_path, given, seconds):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "uv"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": str(programs / "python"), "VENV": str(tmp_path),
        "R3L_EXTRAS": "dev", "CALLS": str(tmp_path / "calls"),
    }  # fmt: skip
    done = subprocess.run(["bash", str(SCRIPT)], env=environment | given, capture_output=True, text=True, check=True)
    assert f"this one waits for it, up to {seconds} s (UV_LOCK_TIMEOUT)" in done.stdout
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.startswith(f"{seconds} pip install --compile-bytecode")
    assert call.endswith("-e .[dev]")


def test_an_iteration_installs_what_it_needs_and_the_tests_all(tmp_path):
    def commands(target: str) -> str:
        made = ["make", "--dry-run", f"VENV={tmp_path}", target]
        return subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "R3L_EXTRAS=trainer,alfworld bash infra/setup.sh" in commands("iterate")
    assert "R3L_EXTRAS" not in commands("test")
    assert "bash infra/setup.sh" in commands("test")
    (tmp_path / ".ready-to-iterate").touch()
    assert "setup.sh" not in commands("iterate")
    assert "setup.sh" in commands("test")
    (tmp_path / ".ready").touch()
    assert "setup.sh" not in commands("iterate") + commands("test")


def test_the_exact_versions_lie_within_the_declared_ranges():
    pinned = dict(line.split("==") for line in CONSTRAINTS.read_text().splitlines())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for asked in map(Requirement, chain(project["dependencies"], *project["optional-dependencies"].values())):
        version = pinned.get(asked.name)
        assert version is None or asked.specifier.contains(version), f"{asked}, but {CONSTRAINTS.name} has {version}"
    assert "sqlalchemy" in pinned


def test_the_tests_of_extras_are_run_where_the_extras_are():
    """Each file of the fast suite that skips for want of a package which `make setup` leaves out."""
    script = (ROOT / "infra" / "extras.sh").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    usual = re.search(r"R3L_EXTRAS:-([\w,]+)", SCRIPT.read_text())[1].split(",")
    usual += re.findall(r"grep -vx (\w+)", script)  # what can't be beside the others
    modules = {"prefect-ray": "prefect_ray"}
    rare = [
        modules.get(name, name)
        for extra in extras.keys() - set(usual)
        for name in (Requirement(one).name for one in extras[extra])
    ]
    lacking = re.compile(rf"""(?:importorskip\(|find_spec\()["'](?:{"|".join(rare)})["']\)(?! is not None)""")
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if lacking.search(path.read_text())]
    assert files
    assert [str(path.relative_to(ROOT)) for path in files if path.name not in script] == []
