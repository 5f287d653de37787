"""Errors about settings name them as they were typed, with the nearest name that there is first."""

import pytest

from r3l.config import compose
from r3l.config.complaints import nearest_first
from r3l.errors import ConfigError


def test_the_most_alike_come_first_and_then_the_alphabet():
    assert nearest_first("grp", ["raft", "grpo", "b", "a"]) == ["grpo", "raft", "a", "b"]
    assert nearest_first("Alpha", ["pivot", "alpha"]) == ["alpha", "pivot"]


@pytest.mark.parametrize(("assignment", "said"), [
    ("method.alpha=-1", "\n  method.alpha: Input should be greater than or equal to 1 (got -1)"),
    ("environment.max_turns=no", "\n  environment.max_turns: Input should be a valid integer"),
    ("method.alpah=5", "method.alpah: unknown setting; method has alpha, "),
    ("engine.treads=5", "engine.treads: unknown setting; engine has threads, "),
    ("rollout.taks=3", "\n  rollout.taks: unknown setting; rollout has tasks, "),
    ("rolout.tasks=3", "\n  rolout: unknown setting; expected one of rollout, "),
    ("method.kind=grp", "\n  method.kind: got 'grp', expected one of grpo, ngrpo, "),
    ("engine.kind=vlm", "\n  engine.kind: got 'vlm', expected one of vllm_server, transformers_local"),
    ("environment.games=ful", "\n  environment.games: got 'ful', expected one of full, downloaded, kitchen"),
    ("method=5", "\n  method: Input should be a valid dictionary"),
    ("tracking.to=[\"tensorbord\"]", "\n  tracking.to.0: got 'tensorbord', expected one of tensorboard, "),
])  # fmt: skip
def test_a_setting_is_named_as_it_was_typed(assignment, said):
    with pytest.raises(ConfigError) as refused:
        compose(assignments=[assignment])
    assert said in f"\n{refused.value}" if said.startswith("\n") else str(refused.value).startswith(said), str(
        refused.value
    )


def test_settings_that_contradict_each_other_are_named_without_their_whole_section():
    with pytest.raises(ConfigError, match=r"\n  training: overlap=true and sync_interval=2 both .* one of them$"):
        compose(assignments=["training.overlap=true", "training.sync_interval=2"])


@pytest.mark.parametrize(("preset", "nearest"), [
    ({"method": "grop"}, "grpo"), ({"policy": "qwen2.5-7B"}, "qwen2.5-7b"), ({"environment": "alfwrld"}, "alfworld"),
    ({"machine": "two_node"}, "two_nodes")])  # fmt: skip
def test_of_the_presets_the_nearest_is_named_first(preset, nearest):
    with pytest.raises(ConfigError, match=rf"unknown preset .*: expected one of {nearest}, "):
        compose(**preset)
