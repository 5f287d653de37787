"""The wheel, installed where there is no checkout, from an empty folder: an iteration, its tables, the worked
questions."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.installed import OFFLINE, PIP, clean, copy_tracked, fresh_environment, run

ROOT = Path(__file__).parents[2]
SMALL = [
    "environment.train_games=2", "environment.heldout_games=1", "environment.max_turns=6", "environment.workers=1",
    "rollout.tasks=1", "rollout.group_size=2",
]  # fmt: skip
UV = (sys.executable, "-m", "uv")
needs_uv = pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="uv is not installed: pip install uv")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_it_holds_what_ships_and_nothing_that_was_written(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "r3l/shipped/data/policies/embedded/model.safetensors",
        "r3l/shipped/data/policies/alfworld-latent-1-0/model.safetensors",
        "r3l/shipped/data/policies/household-easy-0/model.safetensors",
        "r3l/shipped/data/policies/smollm2-household-adapter/adapter_model.safetensors",
        "r3l/shipped/data/experiments/main_alfworld.toml", "r3l/shipped/data/experiments/parts/sizes.toml",
        "r3l/shipped/data/queries/01_iterations.sql", "r3l/shipped/data/problems/arithmetic.jsonl",
        "r3l/shipped/data/claims.toml",
        "r3l/presets/methods/paper.toml", "r3l_flows/own_server.py",
    } <= names  # fmt: skip
    (points,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
    assert "household = r3l.lab.warm_start.recipes:household" in zipfile.ZipFile(wheel).read(points).decode()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"r3l", "r3l_flows"}
    assert not [name for name in names if name.startswith(("r3l/shipped/data/runs", "r3l/shipped/data/tasks"))]


def test_an_iteration_from_an_empty_folder(installed, tmp_path):
    person, empty = tmp_path / "person", tmp_path / "empty"
    person.mkdir()
    empty.mkdir()
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "flows.py").write_text("raise AssertionError('the package of another project')")
    environment = clean(person, installed) | {"PYTHONPATH": str(tmp_path / "strange")}

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


def test_an_editable_installation_imports_the_checkouts_flows(tmp_path):
    source = tmp_path / "source"
    copy_tracked(source)
    programs = fresh_environment(tmp_path / "environment")
    run(*PIP, "--python", programs / "python", "install", *OFFLINE, "--no-build-isolation", "--editable", source)
    where = run(programs / "python", "-c", "import flows; print(flows.__file__)", cwd=tmp_path).stdout.strip()
    assert where == str(source / "flows" / "__init__.py")
    assert "r3l " in run(programs / "r3l", "--version", cwd=tmp_path).stdout


@needs_uv
def test_a_plain_installation_names_the_extras_of_a_run_and_trains_once_it_has_them(wheel, tmp_path):
    """Nothing of this environment: the wheel and its dependencies alone, as `pip install` gives them."""
    programs, person, empty = tmp_path / "venv" / "bin", tmp_path / "person", tmp_path / "empty"
    person.mkdir()
    empty.mkdir()
    run(*UV, "venv", "--python", sys.executable, programs.parent)
    environment = clean(person, programs) | {"R3L_HOME": str(tmp_path / "home")}

    def install(extras: str) -> None:
        links = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if os.environ.get("PIP_FIND_LINKS") else {}
        asked = f"r3l{extras} @ {wheel.as_uri()}"
        exact = ("--constraint", ROOT / "infra" / "constraints" / "python311.txt")
        run(*UV, "pip", "install", "--python", programs / "python", *exact, asked, env=os.environ | links)

    install("")
    plain = subprocess.run(
        [programs / "r3l", "iterate"], cwd=empty, env=environment, capture_output=True, text=True, check=False
    )
    assert plain.returncode == 2, plain.stderr
    assert "pip install 'r3l[alfworld,trainer]'" in " ".join(plain.stderr.split())
    assert not list(tmp_path.glob("home/data/runs/*"))

    install("[trainer]")
    household = ("--environment", "household", "--policy", "household")
    sizes = ("--set", "rollout.tasks=2", "--set", "rollout.group_size=4")
    run(programs / "r3l", "iterate", "--run", "away", *household, *sizes, cwd=empty, env=environment)
    assert run(programs / "r3l", "check", "away", cwd=empty, env=environment).stdout.splitlines()[-1] == "away: ok"
    assert list(empty.iterdir()) == []


@needs_uv
def test_the_source_distribution_builds_the_same_wheel_and_both_can_be_published(wheel, tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    copy_tracked(source)
    run(*UV, "tool", "run", "--from", "build", "pyproject-build", "--outdir", out, cwd=source)
    made = sorted(out.iterdir())
    assert [path.suffix for path in made] == [".whl", ".gz"]
    assert set(zipfile.ZipFile(made[0]).namelist()) == set(zipfile.ZipFile(wheel).namelist())
    run(*UV, "tool", "run", "twine", "check", "--strict", *made)
