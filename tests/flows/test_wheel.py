"""The wheel, installed where there is no checkout, from an empty folder: an iteration, its tables, the worked
questions."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = [
    "environment.train_games=2", "environment.heldout_games=1", "environment.max_turns=6", "environment.workers=1",
    "rollout.tasks=1", "rollout.group_size=2",
]  # fmt: skip
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from what git would give a stranger."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.split("\0")
    for name in filter(None, names):
        if not name.startswith(("tests/", "data/results/", "infra/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        out,
        cwd=source,
    )
    (made,) = out.glob("r3l-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The folder of its programs, in an environment that has the dependencies of this one and no r3l but the
    wheel's."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    (packages / "shared.pth").write_text(
        sysconfig.get_path("purelib") + "\n"
    )  # its own .pth files don't count: no checkout
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--force-reinstall",
        wheel,
        env=environment,
    )
    return folder / "bin"


def test_it_holds_what_ships_and_nothing_that_was_written(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "r3l/shipped/data/policies/embedded/model.safetensors", "r3l/shipped/data/policies/household-easy-0/model.safetensors",
        "r3l/shipped/data/experiments/main_alfworld.toml", "r3l/shipped/data/experiments/parts/sizes.toml",
        "r3l/shipped/data/queries/01_iterations.sql", "r3l/shipped/data/problems/arithmetic.jsonl", "r3l/shipped/data/claims.toml",
        "r3l/presets/methods/paper.toml", "flows/serving/own.py",
    } <= names  # fmt: skip
    assert not [
        name for name in names if name.startswith(("tests/", "r3l/shipped/data/runs", "r3l/shipped/data/tasks"))
    ]


def test_an_iteration_from_an_empty_folder(installed, tmp_path):
    person, empty = tmp_path / "person", tmp_path / "empty"
    person.mkdir()
    empty.mkdir()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "R3L_", "PYTHONPATH"))
    }
    environment |= {"HOME": str(person), "PATH": f"{installed}:{os.environ['PATH']}"}

    def r3l(*words: str) -> str:
        return run(installed / "r3l", *words, cwd=empty, env=environment).stdout

    settings = [word for assignment in SMALL for word in ("--set", assignment)]
    r3l("iterate", "--run", "away", *settings)
    assert list(empty.iterdir()) == []
    assert {path.name for path in person.iterdir()} <= {".r3l", ".cache"}  # the cache is of libraries
    assert (person / ".r3l" / "data" / "runs" / "away" / "iteration=00000" / "updates" / "stage.json").is_file()
    assert r3l("check", "away").strip() == "away: ok"
    assert "away" in r3l("runs")
    assert "GRPO" in r3l("compare", "main_alfworld", "--plan")
    found = run(
        installed / "python",
        "-c",
        "import r3l.audit.web.app as app; print(len(list(app.QUESTIONS.glob('*.sql'))))",
        cwd=empty,
    )
    assert int(found.stdout) == len(list((ROOT / "data" / "queries").glob("*.sql")))
    environment["R3L_HOME"] = str(tmp_path / "elsewhere")
    with pytest.raises(AssertionError, match=f"store {tmp_path}/elsewhere/data/runs: not there"):
        r3l("runs")
