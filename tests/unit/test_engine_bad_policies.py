"""A policy that can't be sampled from is named with what is wrong with it, not with an index."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.canary import compare
from r3l.engines.embedded.engine import TransformersLocal
from r3l.errors import EngineError
from tests.support.update_world import VOCABULARY, write_policy

SAMPLING = Sampling(temperature=1.0, max_tokens=4, seed=0, stop_token_ids=(1,))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named_when_they_are_loaded(tmp_path: Path, number: float) -> None:
    folder = write_policy(tmp_path / "policy")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 2] = number
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    engine = TransformersLocal(TransformersLocalSettings(), PolicySettings())
    with pytest.raises(
        EngineError, match=r"1 of its weights hold NaN or infinity, the first is model\.layers\.1\.mlp\.up_proj"
    ):
        engine.load_policy(PolicySnapshot(str(folder), "d"))
    engine.close()


def test_a_token_that_the_policy_does_not_have_is_named(tmp_path: Path) -> None:
    engine = TransformersLocal(TransformersLocalSettings(), PolicySettings())
    engine.load_policy(PolicySnapshot(str(write_policy(tmp_path / "policy")), "d"))
    for ids in ([5, VOCABULARY], [-1, 5]):
        with pytest.raises(EngineError, match=f"the policy has {VOCABULARY} embeddings: .*tokenizer of another model"):
            engine.complete("a", ids, SAMPLING).result()
    assert engine.complete("b", [5, VOCABULARY - 1], SAMPLING).result().token_ids
    engine.close()


class Fixed:
    def score(self, token_ids: list[int]) -> list[float]:
        return [-1.0, torch.nan]


def test_a_canary_of_nan_says_so() -> None:
    with pytest.raises(EngineError, match="the engine gives the canary's tokens log-probabilities that are NaN"):
        compare(Fixed(), [1, 2, 3], [-1.0, -1.0], 0.1)  # type: ignore[arg-type]
