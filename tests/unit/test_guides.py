"""What the guides tell authors of plug-ins and owners of a GPU is true. `tests/flows/test_guides_followed.py` runs
them."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from flows.cli import app as cli
from r3l import plugins
from r3l.config import compose
from r3l.config.compose import Asked, compose_asked
from r3l.environments.kinds import make_world
from r3l.evaluation.benchmarks import pose_benchmark
from r3l.planning.memory import SIZES, fits
from tests.unit.test_readme import commands, parsed

ROOT = Path(__file__).parents[2]
GUIDE, GPU = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "infra" / "GPU.md").read_text()


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on sys.path with the guide's modules, each named in its first line."""
    for text in re.findall(r"```python\n(# \w+\.py\n.*?)```", GUIDE, re.DOTALL):
        (tmp_path / text.split()[1]).write_text(text)
    monkeypatch.setenv(plugins.NAMED, "")
    monkeypatch.setenv(plugins.FOLDERS, "")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_a_reward_of_ones_own_counts_in_parts(modules):
    assert (modules / "my_reward.py").is_file()
    config = compose(environment="my_reward:Partial", assignments=["environment.level=easy"])
    world = make_world(config.environment)
    environment, usual = world.make(), make_world(compose(environment="household").environment).make()
    task = world.tasks("train")[0]
    environment.reset(task)
    usual.reset(task)
    step, before = environment.step("look"), usual.step("look")
    assert step.reward == step.standing == step.progress == before.progress
    assert before.reward == before.standing == 0


def test_a_world_derived_for_a_reward_is_played_as_the_preset_has_it(modules):
    """Of every section with kinds: the policy's preset is for the class that the own one is derived from."""
    (modules / "mine.py").write_text(
        "from r3l.environments.household.world import HouseholdWorld\n"
        "from r3l.methods.r3l import R3L\n"
        "from r3l.config.methods import R3LSettings\n"
        "class World(HouseholdWorld): pass\n"
        "from r3l.environments.math.world import MathWorld\n"
        "class Sums(MathWorld): pass\n"
        "class Other: pass\n"
        "class Method(R3L):\n    Settings = R3LSettings\n"
    )
    usual = compose(policy="household", environment="household").environment
    for kind in ("my_reward:Partial", "mine:World"):
        config = compose(policy="household", environment=kind)
        assert config.environment.model_dump() == usual.model_dump() | {"kind": kind}
        assert (config.environment.level, config.environment.max_turns, config.environment.reply_tokens) == (
            "easy",
            16,
            64,
        )
        test = pose_benchmark(config, "household-easy").config.environment
        assert (test.kind, test.max_turns, test.reply_tokens) == ("household", 16, 64)
    assert compose(policy="household", environment="mine:Other").environment.max_turns == 25
    assert compose(policy="household", environment="webshop").environment.reply_tokens == 512
    sums = compose(method="released", environment="mine:Sums")  # a preset's own case of an environment
    assert (sums.environment.kind, sums.method.retry_from) == ("mine:Sums", "start")
    assert compose(method="released", environment="mine:World").method.retry_from == "pivot"
    stored = compose(method="released").model_dump(mode="json")
    assert compose_asked(Asked.of(assignments=["method.kind=mine:Method"]), stored).method.top_rule == "success"


def test_files_that_the_guide_names_are_there():
    for path in re.findall(r"`((?:r3l|flows|tests|data|infra)/[\w./-]+\.(?:py|md|sql|toml))`", GUIDE):
        assert "NAME" in path or (ROOT / path).is_file(), path


def test_commands_of_the_guides_parse():
    app = cli.app_of([*cli.PLACES, *plugins.installed("command")])
    found = [line for page in (GUIDE, GPU) for line in commands(page) if re.match(r"(\S+=\S+ )?(\S*/)?r3l .* --", line)]
    assert len(found) > 20
    for line in found:
        words = shlex.split(re.sub(r"^(\w+=\S+ )?(\S*/)?r3l ", "", line))
        parsed(app, words)


def test_what_fits_on_a_gpu_is_what_the_plan_says():
    rows = re.findall(r"^\| (Qwen\S+) \| (all weights|LoRA) \| (.*?) \|$", GPU, re.MULTILINE)
    said = {
        (model.lower(), trains, gpu): cell
        for model, trains, cells in rows
        for gpu, cell in zip(SIZES, cells.split(" | "), strict=True)
    }
    planned = fits("one_gpu", compose(policy="qwen2.5-1.5b", machine="one_gpu"))
    assert said == {
        (one.policy, {"none": "all weights", "lora": "LoRA"}[one.adapter], one.gpu): f"{one.context_tokens:,} tokens"
        if one.context_tokens
        else f"no: {one.needs_gb:.0f} GB"
        for one in planned
    }
