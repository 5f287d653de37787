"""A wrong, stale or missing policy in the engine is caught by its log-probabilities."""

import json
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.canary import check_canary, compare
from r3l.errors import EngineError
from tests.unit.engine_canaries import caught, updated_adapter
from tests.unit.engine_policies import plain_logprobs, plain_model, tiny_policy
from tests.unit.test_engine_reuse import adapted, adapter_on

IDS = [5, 17, 3, 60, 8, 44, 2, 91, 33, 10]


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    trainer = plain_model(tiny_policy(tmp_path / "new", seed=1))
    path = tmp_path / "canary.json"
    path.write_text(
        json.dumps({"policy": "llama-1", "token_ids": IDS, "logprobs": plain_logprobs(trainer, IDS).tolist()})
    )
    return path


def test_the_right_policy_passes_and_a_stale_one_is_named(tmp_path: Path, canary: Path) -> None:
    engine = make_engine(TransformersLocalSettings(device="cpu"), PolicySettings())
    engine.load_policy(tiny_policy(tmp_path / "new", seed=1))
    difference = check_canary(engine, canary, "float32")
    assert difference is not None
    assert 0 < difference < 1e-4
    engine.load_policy(tiny_policy(tmp_path / "old", seed=0))
    with pytest.raises(EngineError, match=r"the canary.* tolerance 0.002; the largest difference is at token \d+"):
        check_canary(engine, canary, "float32")
    engine.close()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_policy_one_step_old_is_caught_where_rounding_is_as_large_as_the_step(tmp_path: Path, dtype: str) -> None:
    """A tolerance that lets the old policy pass; an adapter of another run is as far from both, and caught by the usual
    one."""
    old = tiny_policy(tmp_path / "old")
    new, other = adapter_on(old, tmp_path / "new", 1), adapter_on(old, tmp_path / "other", 2)
    before, after = (plain_logprobs(model, IDS).tolist() for model in (plain_model(old), adapted(old, new)))
    step = max(abs(a - b) for a, b in zip(before, after, strict=True))
    canary = tmp_path / "canary.json"
    canary.write_text(json.dumps({"token_ids": IDS, "logprobs": after, "before": before}))
    engine = make_engine(TransformersLocalSettings(device="cpu"), PolicySettings(dtype=dtype))
    engine.load_policy(new)
    difference = check_canary(engine, canary, dtype, 2 * step)
    assert difference is not None
    assert difference < step / 4
    engine.load_policy(old)
    with pytest.raises(EngineError, match="the policy from before the last update"):
        check_canary(engine, canary, dtype, 2 * step)
    engine.load_policy(other)
    with pytest.raises(EngineError, match="does not run the policy"):
        check_canary(engine, canary, dtype)
    engine.close()


def test_an_adapter_planted_under_the_new_ones_name_is_caught(tmp_path: Path) -> None:
    base = tiny_policy(tmp_path / "base")
    update, other = updated_adapter(base, tmp_path), adapter_on(base, tmp_path / "other", 2)
    engine = make_engine(TransformersLocalSettings(device="cpu"), PolicySettings())
    caught(engine, update, update.planted(update.before.path), "the policy from before the last update")
    caught(engine, update, update.planted(other.path), "does not run the policy")
    engine.load_policy(update.after)
    difference = check_canary(engine, update.canary, "float32")
    assert difference is not None
    assert difference < 1e-5
    engine.close()


def scoring(logprobs: list[float]) -> Any:
    return SimpleNamespace(score=lambda token_ids: logprobs)


@pytest.mark.parametrize("noise", [0.02, 0.2, 2.0])
def test_rounding_alone_is_never_taken_for_a_stale_policy(noise: float) -> None:
    """A step of .1 a token under rounding of a fifth to twenty times that: stale is caught where that can be told, new
    never refused."""
    chance, caught_stale = random.Random(0), 0
    for _ in range(200):
        old = [-abs(chance.gauss(0, 2)) for _ in range(120)]
        new = [logprob + chance.gauss(0, 0.1) for logprob in old]
        rounded = [[logprob + chance.gauss(0, noise) for logprob in side] for side in (old, new)]
        compare(scoring(rounded[1]), [0] * 121, new, 10.0, old)
        try:
            compare(scoring(rounded[0]), [0] * 121, new, 10.0, old)
        except EngineError:
            caught_stale += 1
    assert noise > 0.1 or caught_stale == 200


@pytest.mark.parametrize("noise", [0.02, 0.2, 0.5])
def test_the_trainers_own_rounding_is_never_taken_for_one_either(noise: float) -> None:
    """The same, of as many tokens as a canary has, with the trainer's two sides rounded like the engine's."""
    chance, caught_stale = random.Random(0), 0
    for _ in range(400):
        old = [-abs(chance.gauss(0, 2)) for _ in range(255)]
        new = [logprob + chance.gauss(0, 0.1) for logprob in old]
        rounded = [[logprob + chance.gauss(0, noise) for logprob in side] for side in (old, new, old, new)]
        compare(scoring(rounded[1]), [0] * 256, rounded[3], 10.0, rounded[2])
        try:
            compare(scoring(rounded[0]), [0] * 256, rounded[3], 10.0, rounded[2])
        except EngineError:
            caught_stale += 1
    assert noise > 0.1 or caught_stale == 400


def test_a_step_that_is_shorter_than_rounding_is_not_judged() -> None:
    """A hundred tokens that the trainer's rounding moved by -.05 and the engine's by .0165 and .1 to either side: -.33
    of the step is seen, with an error of .2, of whatever policy it is."""
    old = [0.5] * 100
    engine = [probability + 0.0165 + (0.1 if token % 2 else -0.1) for token, probability in enumerate(old)]
    logs = [[math.log(probability) for probability in side] for side in (old, [0.45] * 100, engine)]
    assert compare(scoring(logs[2]), [0] * 101, logs[1], 10.0, logs[0]) > 0.1
    nearer = [math.log(0.5 + 0.001 * (-1) ** token) for token in range(100)]  # rounding a fiftieth of the step
    with pytest.raises(EngineError, match=r"before the last update: 0\.00 \+- 0\.00"):
        compare(scoring(nearer), [0] * 101, logs[1], 10.0, logs[0])


def test_a_starting_policy_has_no_canary_and_a_broken_file_is_an_error(tmp_path: Path) -> None:
    engine = make_engine(TransformersLocalSettings(device="cpu"), PolicySettings())
    assert check_canary(engine, None, "float32") is None
    (tmp_path / "canary.json").write_text('{"token_ids": [1]}')
    with pytest.raises(EngineError, match="not a canary"):
        check_canary(engine, tmp_path / "canary.json", "float32")
    engine.close()
