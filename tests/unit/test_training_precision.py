"""bfloat16 products over float32 weights: close to float32, and the log-probability function itself in both."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from r3l.training.trie.chunked_logprobs import token_logprobs, weighted_logprobs
from tests.support.update_world import relative_error, write_policy
from tests.unit.test_training_resume import step, weights


def moments(out: Path) -> torch.Tensor:
    """A tenth of the clipped gradient."""
    state = load_file(out / "optimizer" / "optimizer.safetensors")
    return torch.cat([state[name].flatten() for name in sorted(state) if name.startswith("exp_avg/")])


def test_bfloat16_products_keep_the_gradient_and_the_float32_weights(tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start")
    wide, narrow = step(tmp_path, start, 1, name="wide"), step(tmp_path, start, 1, name="narrow", dtype="bfloat16")
    losses = [json.loads((out / "update.json").read_text())["loss"] for out in (wide, narrow)]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert 1e-5 < relative_error(moments(narrow), moments(wide)) < 0.03
    assert {tensor.dtype for tensor in weights(narrow).values()} == {torch.float32}


def test_a_frozen_base_is_held_in_bfloat16_under_a_float32_adapter(tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start")
    lora = {"policy_settings": {"adapter": "lora", "lora_rank": 4}}
    wide, narrow = (
        step(tmp_path, start, 1, name="wide", **lora),
        step(tmp_path, start, 1, name="narrow", dtype="bfloat16", **lora),
    )
    assert 1e-5 < relative_error(moments(narrow), moments(wide)) < 0.03
    assert {tensor.dtype for tensor in weights(narrow).values()} == {torch.float32}


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_chunked_log_probabilities_against_autograd(chunk: int, frozen: bool, bias: bool) -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(5, 11, bias=bias, dtype=torch.float64).requires_grad_(not frozen)
    hidden = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    targets, slopes = torch.randint(0, 11, (7,)), torch.randn(7, dtype=torch.float64)
    inputs = [hidden, *([] if frozen else head.parameters())]
    log_p = head(hidden).log_softmax(-1)
    logp, entropy = log_p.gather(1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)
    expected = torch.autograd.grad(3.0 * (slopes * logp).sum(), inputs)
    value, got_logp, got_entropy = weighted_logprobs(hidden, head, targets, slopes, chunk)
    got = torch.autograd.grad(3.0 * value, inputs)
    assert torch.allclose(value, (slopes * logp).sum())
    assert torch.allclose(got_logp, logp)
    assert torch.allclose(got_entropy, entropy)
    assert all(torch.allclose(a, b) for a, b in zip(got, expected, strict=True))
    scored = token_logprobs(hidden, head, targets, chunk)
    assert torch.equal(scored[0], got_logp)
    assert torch.equal(scored[1], got_entropy)
