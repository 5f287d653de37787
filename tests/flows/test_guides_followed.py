"""The guides "your own ..." are followed as they are written: in a folder with the installed wheel and no checkout."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.installed import OFFLINE, clean, fresh_environment

ROOT = Path(__file__).parents[2]
GUIDE, GPU = ROOT / "CONTRIBUTING.md", ROOT / "infra" / "GPU.md"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Place:
    """A person's folder with an environment `.venv` in it, and a home and a store of its own."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, person = folder / "work", folder / "person"
        self.folder.mkdir()
        person.mkdir()
        programs = fresh_environment(self.folder / ".venv", wheel)
        pip = programs / "pip"  # `pip install X` of what needs no index
        install = f"{programs}/python -m pip install {' '.join(OFFLINE)} --no-build-isolation"
        pip.write_text(f'#!/bin/sh\nshift; exec {install} "$@"\n')
        pip.chmod(0o755)
        self.home, self.store = person / ".r3l", person / ".r3l" / "data" / "runs"
        self.environment = clean(person, programs)

    def follow(self, commands: str) -> str:
        """What these lines of a shell say, each of which has to end well."""
        done = self.end(commands)
        assert done.returncode == 0, f"{commands}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def end(self, commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", commands], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def rows(self, run: str, question: str) -> list[dict[str, object]]:
        said = self.follow(f'.venv/bin/r3l sql "{question}" --run {run} --json')
        return [json.loads(line) for line in said.splitlines()]


@pytest.fixture(scope="module")
def place(wheel, tmp_path_factory) -> Place:
    return Place(tmp_path_factory.mktemp("place"), wheel)


def blocks(path: Path, title: str, language: str = "sh") -> list[str]:
    """The code of a guide's section."""
    titled = rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)"
    (section,) = re.findall(titled, _bare(path.read_text()), re.DOTALL | re.MULTILINE)
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def _bare(text: str) -> str:
    """The text without comments at the end of its commands' lines, and without lines of code that look like titles."""
    return re.sub(r"(?<=\S)  +# .*$", "", re.sub(r"(```python\n)# (\w+\.py)\n", r"\1#\2\n", text), flags=re.MULTILINE)


def test_your_own_environment(place):
    installed, named = blocks(GUIDE, "Your own environment")
    assert place.follow(installed).endswith("game: ok\n")
    assert place.rows("game", "SELECT DISTINCT environment FROM tasks") == [{"environment": "my_game"}]
    assert place.rows("game", "SELECT count(*) AS n FROM evaluations") == [{"n": 2}]
    assert place.follow(named).endswith("named: ok\n")
    asked = "SELECT iteration, benchmark, count(*) AS n FROM evaluations GROUP BY ALL ORDER BY ALL"
    assert [tuple(row.values()) for row in place.rows("named", asked)] == [
        (-1, "r3l_my_game:MyGame/heldout", 1),
        (0, "r3l_my_game:MyGame/heldout", 2),
    ]
    refused = place.end("cd r3l-my-game; ../.venv/bin/r3l evaluate named --tasks 1")
    assert refused.returncode == 2
    assert "set R3L_PLUGINS=r3l_my_game:MyGame" in refused.stderr


def test_the_tutorial(place):
    """Every command, with two iterations in place of ten, and an evaluation of four tasks."""
    page = (ROOT / "data" / "guide" / "tutorial.md").read_text()
    (world,) = re.findall(r"```python\n# errands.py\n(.*?)```", page, re.DOTALL)
    (place.folder / "errands.py").write_text(world)
    script = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    for long, short in (("--iterations 9 --evaluate-every 5", "--iterations 1"), ("--tasks 20", "--tasks 4")):
        assert long in script
        script = script.replace(long, short)
    shown = place.follow(script)
    assert "Your task is to" in shown
    assert "they part in iteration 0, credit shard 0: settings" in shown
    assert "mine: ok" in shown
    assert (place.folder / "my-model" / "model.safetensors").is_file()
    assert (place.folder / "mine.html").stat().st_size > 100_000
    assert place.rows("mine", "SELECT DISTINCT iteration FROM evaluations ORDER BY ALL") == [
        {"iteration": -1},
        {"iteration": 1},
    ]


def test_your_own_reward(place):
    (code,) = blocks(GUIDE, "Your own reward", "python")
    name, _, text = code[1:].partition("\n")
    (place.folder / name).write_text(text)
    (commands,) = blocks(GUIDE, "Your own reward")
    place.follow(commands)
    partly = "SELECT count(*) AS n FROM base WHERE not success AND reward > 0 AND reward < 1"
    assert place.rows("partial", partly)[0]["n"], "some attempt went a part of the way"


def test_your_own_method(place):
    (commands,) = blocks(GUIDE, "Your own method")
    shutil.copytree(ROOT / "data" / "sample_run" / "sample", place.store / "sample", dirs_exist_ok=True)
    said = place.follow(commands.replace("replay demo", "replay sample"))  # the sample takes the first run's place
    assert "method_version = 1" in said
    (credit,) = place.rows("ranks", "SELECT count(*) AS n, max(abs(advantage)) AS largest FROM credit")
    assert credit["n"]
    assert credit["largest"] <= 1, "deviations and ranks of rewards in [0, 1]"


def test_your_own_model_up_to_where_a_gpu_is_needed(place):
    before, on_gpu, *_ = blocks(GPU, "Your own model on your own GPU")
    model = place.home / "data" / "policies" / "hub" / "Qwen" / "Qwen2.5-1.5B-Instruct"  # where it is fetched into
    shutil.copytree(ROOT / "data" / "policies" / "household-easy-0", model)
    said = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 32768}
    (model / "config.json").write_text(json.dumps(said))
    plan, doctor = before.splitlines()
    assert "What fits on one GPU" in place.follow(plan)
    told = place.end(f"{doctor} --environment household --json")
    failing = [one["check"] for one in json.loads(told.stdout) if one["verdict"] == "fails"]
    has_gpu = any(Path("/dev").glob("nvidia[0-9]*"))
    assert failing == ([] if has_gpu else ["gpu"])
    install, _, iterate = on_gpu.splitlines()
    (script,) = re.findall(r"bash (\S+)", install)
    assert subprocess.run(["bash", "-n", ROOT / script], check=False).returncode == 0
    refused = place.end(f"{iterate} --environment household")
    assert refused.returncode == 2
    assert ("vLLM needs an environment" if has_gpu else "this machine has no GPU") in refused.stderr
    assert not (place.store / "mine").exists(), "nothing was begun"
