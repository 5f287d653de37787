"""Options that contradict each other are refused by name, in every command, before anything starts."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.app import app_of
from flows.cli.settings import method_preset
from r3l.config import compose
from r3l.config.compose import refuse_contradictions
from r3l.errors import ConfigError
from r3l.pipeline.replay import replay_config
from r3l.pipeline.settings.continuing import save_config
from r3l.pipeline.workbench import Replay
from r3l.store.stage import Store

PAIRS = [
    "iterate --preset released --method grpo", "iterate --preset grpo --method r3l",
    "iterate --method grpo --set method.kind=raft", "iterate --environment household --set environment.kind=webshop",
    "iterate --engine vllm_server --set engine.kind=transformers_local", "iterate --run a --set run=b",
    "iterate --store STORE --set store.root=/elsewhere", "iterate --iteration 0 --set iteration=1",
    "iterate --branch a --set branch=b", "iterate --set rollout.tasks=2 --set rollout.tasks=3",
    "iterate --quiet --verbose", "train --quiet --verbose", "train --preset released --method gspo",
    "train --evaluate-every 2 --set evaluation.every=3", "evaluate --tasks 5 --whole",
    "evaluate --tasks 5 --set evaluation.tasks=6", "evaluate --repeats 2 --set evaluation.repeats=3",
    "evaluate --benchmark household-easy --environment webshop",
    "evaluate --benchmark gsm8k --set evaluation.benchmark=amc23", "evaluate --preset released --method grpo",
    "compare main_alfworld --plan --page", "audit STORE --store /elsewhere",
]  # fmt: skip


def invoked(words: list[str]) -> Any:
    return CliRunner().invoke(app_of([words[0], "presets"]), words)


@pytest.mark.parametrize("words", PAIRS)
def test_two_options_that_contradict_each_other(words: str, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    at = [] if "--store" in words or "compare" in words else ["--store", store]
    outcome = invoked([*words.replace("STORE", store).split(), *at])
    assert isinstance(outcome.exception, ConfigError), outcome.output
    assert "leave one out" in str(outcome.exception)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("preset", "method", "chosen"), [
    ("", "", ""),
    ("", "r3l", "paper"),
    ("", "grpo", "grpo"),
    ("released", "", "released"),
    ("released", "r3l", "released"),
])  # fmt: skip
def test_a_preset_and_its_own_method_agree(preset: str, method: str, chosen: str) -> None:
    assert method_preset(preset, method) == chosen


def test_a_run_begins_at_its_beginning(tmp_path: Path) -> None:
    outcome = invoked(["iterate", "--run", "new", "--iteration", "7", "--direct", "--store", str(tmp_path)])
    assert "iteration=7: run new has come to iteration 0" in str(outcome.exception)


REPLAYS = [
    ("rollout.tasks=2", "credit", "credit", "rollout.tasks belongs to tasks; use --from tasks"),
    ("rollout.group_size=4", "credit", "updates", "rollout.group_size belongs to base; use --from base"),
    ("environment.level=easy", "credit", "updates", "environment.level belongs to tasks; use --from tasks"),
    ("policy.context_tokens=512", "credit", "credit", "policy.context_tokens belongs to base; use --from base"),
    ("method.retry_from=start", "credit", "credit", "method.retry_from belongs to reflections; use --from reflections"),
    ("training.learning_rate=0.1", "credit", "credit", "training.learning_rate belongs to updates; use --to updates"),
    ("policy.path=other", "credit", "credit", "policy.path belongs to base; use --from base"),
    ("evaluation.tasks=4", "tasks", "updates", "evaluation.tasks belongs to evaluations, which no replay makes"),
    ("run=other", "credit", "updates", "run: a replay goes by the arguments"),
    ("store.root=/elsewhere", "credit", "updates", "store.root: a replay goes by the arguments"),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store.open(str(tmp_path_factory.mktemp("replayed")))
    save_config(store, compose(run="demo", environment="household"), 0)
    return store


@pytest.mark.parametrize(("given", "first", "last", "message"), REPLAYS)
def test_a_replay_takes_no_setting_of_stages_that_it_does_not_make(given, first, last, message, stored):
    with pytest.raises(ConfigError, match=re.escape(message)):
        replay_config(stored, "demo", 0, Replay("", first, last), [given])


@pytest.mark.parametrize(("given", "first", "last"), [
    ("method.alpha=5", "credit", "credit"),
    ("method.kind=grpo", "credit", "updates"),
    ("rollout.tasks=2", "tasks", "credit"),
    ("training.learning_rate=0.1", "updates", "updates"),
    ("seed=4", "retries", "updates"),
    ("policy.path=other", "retries", "retries"),
    ("engine.max_batch=8", "credit", "credit"),
])  # fmt: skip
def test_a_replay_takes_those_that_it_goes_by(given: str, first: str, last: str, stored: Store) -> None:
    assert replay_config(stored, "demo", 0, Replay("", first, last), [given]).branch == "replay-1"


def test_a_file_that_is_no_preset_of_its_option_is_refused(tmp_path: Path) -> None:
    """Its method would be that of no option, and its environment the default one."""
    preset = tmp_path / "mine.toml"
    preset.write_text('[method]\nkind = "grpo"\n')
    outcome = invoked(["iterate", "--run", "new", "--environment", str(preset), "--store", str(tmp_path / "store")])
    assert isinstance(outcome.exception, ConfigError), outcome.output
    assert "mine.toml: a preset of environments has a section [environment]; this one has method" in str(
        outcome.exception
    )


def test_a_value_that_is_no_number_contradicts_no_other() -> None:
    refuse_contradictions({}, ["training.learning_rate=NaN"])
