"""The engine's own Llama beside transformers' in the engine: the same bits; and which models are left to
transformers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import PolicySnapshot
from r3l.engines.embedded import loading
from r3l.engines.embedded.llama import Llama, load_llama
from r3l.errors import EngineError
from tests.unit.engine_policies import tiny_policy
from tests.unit.test_engine_transformers_local import random_prompts, sampling

VARIANTS = {
    "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    "attention_bias": True,
    "hidden_act": "gelu",
}


def results(snapshot: PolicySnapshot, dtype: str) -> list[tuple[list[int], list[float]]]:
    engine = make_engine(TransformersLocalSettings(device="cpu"), PolicySettings(context_tokens=512, dtype=dtype))
    engine.load_policy(snapshot)
    prompts = random_prompts(9, shared=150)
    replies = [engine.complete(f"turn={seed}", ids, sampling(1.0, 30, seed)) for seed, ids in enumerate(prompts)]
    found = [(reply.result().token_ids, reply.result().logprobs) for reply in replies]
    found.append(([], engine.score(prompts[0])))
    engine.close()
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_bits_are_those_of_transformers(tmp_path, monkeypatch, dtype, tied):
    rope = {"rope_type": "default", "rope_theta": 5e4}
    snapshot = tiny_policy(tmp_path, tie_word_embeddings=tied, rope_parameters=rope)
    own = results(snapshot, dtype)
    assert isinstance(loading.load_model(snapshot, torch.float32, torch.device("cpu")), Llama)
    monkeypatch.setattr(loading, "load_llama", lambda *_: None)
    assert results(snapshot, dtype) == own


def test_rotary_frequencies_keep_their_digits_in_bfloat16(tmp_path, monkeypatch):
    """Rounded, they turn far tokens by a radian, which no trainer and no server does."""
    snapshot, cpu = tiny_policy(tmp_path), torch.device("cpu")
    expected = 1 / 1e4 ** (torch.arange(0, 8, 2) / 8)
    for _ in ("own", "of transformers"):
        model = loading.load_model(snapshot, torch.bfloat16, cpu)
        (frequencies,) = (value for name, value in model.named_buffers() if name.endswith(".inv_freq"))
        torch.testing.assert_close(frequencies, expected)
        assert {parameter.dtype for parameter in model.parameters()} <= {torch.bfloat16}
        monkeypatch.setattr(loading, "load_llama", lambda *_: None)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_left_to_transformers(tmp_path, name):
    tiny_policy(tmp_path, **{name: VARIANTS[name]})
    assert load_llama(tmp_path, torch.float32) is None


@pytest.mark.parametrize("change", [{"model.norm.weight": torch.ones(33)}, {"model.more": torch.ones(1)}])
def test_weights_of_another_shape_or_name_are_left_to_transformers(tmp_path, change):
    tiny_policy(tmp_path)
    assert load_llama(tmp_path, torch.float32)
    save_file(load_file(tmp_path / "model.safetensors") | change, tmp_path / "model.safetensors", {"format": "pt"})
    assert load_llama(tmp_path, torch.float32) is None


def test_a_config_of_an_older_transformers_is_left_to_transformers(tmp_path):
    tiny_policy(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_theta": 1e4, "rope_scaling": None}))
    assert load_llama(tmp_path, torch.float32) is None


def test_weights_that_were_cut_off_are_an_error_of_the_engine(tmp_path):
    snapshot = tiny_policy(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(EngineError, match=f"policy {tmp_path} .* can't be loaded"):
        loading.load_model(snapshot, torch.float32, torch.device("cpu"))
