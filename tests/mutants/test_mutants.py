"""Every listed fault is seen by the tests named beside it: a test that can't fail is a defect."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.of_learning import OF_LEARNING
from tests.mutants.patches import OF_THE_STORE, Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("r3l", "flows", "tests", "pyproject.toml")
MUTANTS = [*OF_THE_STORE, *OF_LEARNING]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to make faults in."""
    copy = tmp_path_factory.mktemp("mutants")
    for name in COPIED:
        path = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(path, copy / name, ignore=ignored) if path.is_dir() else shutil.copy(path, copy / name)
    (copy / "data").symlink_to(ROOT / "data")
    return copy


def ran(tree: Path, tests: str) -> subprocess.CompletedProcess[str]:
    """The named tests in the copy, up to the first that fails. Bytecode is not kept: faults come and go within a
    second."""
    arguments, _, words = tests.partition(" -k ")
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments.split()]
    return subprocess.run(
        [*command, *(["-k", words] if words else [])], capture_output=True, text=True, check=False, cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_fault_can_be_made(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.before) == 1
    named, _, words = mutant.tests.partition(" -k ")
    files = [(ROOT / path.partition("::")[0]).read_text() for path in named.split()]
    assert any(re.search(rf"def test_\w*{words}", text) for text in files), f"no test is named {words}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tests", sorted({mutant.tests for mutant in MUTANTS}))
def test_the_tests_pass_without_a_fault(tree: Path, tests: str) -> None:
    done = ran(tree, tests)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_fault_is_seen(tree: Path, mutant: Mutant) -> None:
    path = tree / mutant.file
    sound = path.read_text()
    path.write_text(sound.replace(mutant.before, mutant.after))
    try:
        done = ran(tree, mutant.tests)
    finally:
        path.write_text(sound)
    assert done.returncode == 1, done.stdout  # 1: tests failed; not 2 to 5, which tell of pytest itself
    assert "SyntaxError" not in done.stdout
