"""The fused LoRA layer against peft's own and against double precision."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.testing import assert_close
from transformers import LlamaConfig, LlamaForCausalLM

from r3l.config.sections import PolicySettings
from r3l.training.policy import load_policy
from r3l.training.trie.low_rank import fuse

FUSED = "LowRankLinearBackward"


def adapted(dtype: torch.dtype, sizes: tuple[int, int, int], **options: Any) -> Any:
    """Two linear layers in `dtype` with float32 adapters whose products are not zero."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(i, o, bias=False).to(dtype) for i, o in pairwise(sizes)]
    config = LoraConfig(r=2, lora_alpha=6, target_modules=["0", "1"], init_lora_weights=False, **options)
    return get_peft_model(torch.nn.Sequential(*layers), config)


def gradients(model: Any, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The output, and d sum(output^2) by the input and each trained weight."""
    with torch.autocast("cpu", torch.bfloat16, enabled=x.dtype == torch.bfloat16):
        y = model(x)
    trained = [part for part in model.parameters() if part.requires_grad]
    return y, list(torch.autograd.grad(y.double().square().sum(), [x, *trained]))


def is_fused(y: Tensor) -> bool:
    return type(y.grad_fn.next_functions[0][0]).__name__ == FUSED  # type: ignore[union-attr]


def test_it_is_pefts_with_the_same_gradients() -> None:
    model, x = adapted(torch.float32, (6, 5, 4)), torch.randn(2, 3, 6, requires_grad=True)
    y, wanted = gradients(model, x)
    fuse(model)
    z, found = gradients(model, x)
    assert is_fused(z)
    assert not is_fused(y)
    assert_close(z, y)
    assert_close(found, wanted)
    assert len(found) == 5


def test_in_bfloat16_it_is_as_near_to_double_precision_as_peft_is() -> None:
    model, x = adapted(torch.bfloat16, (96, 80, 64)), torch.randn(1, 200, 96).bfloat16().requires_grad_()
    of_peft = gradients(model, x)
    fuse(model)
    fused = gradients(model, x)
    exact = gradients(model.double(), x.detach().double().requires_grad_())  # another dtype than it was fused for
    assert is_fused(fused[0])
    for mine, theirs, one in zip(*([y, *rest] for y, rest in (fused, of_peft, exact)), strict=True):
        errors = [float((got - one).detach().norm() / one.detach().norm()) for got in (mine, theirs)]
        assert errors[0] <= 1.5 * errors[1], errors
        assert errors[0] < 0.02


@pytest.mark.filterwarnings("ignore:.lora_bias")
@pytest.mark.parametrize("options", [{"use_dora": True}, {"lora_bias": True}])
def test_an_adapter_that_does_more_stays_pefts(options: dict[str, Any]) -> None:
    model = adapted(torch.float32, (6, 5, 4), **options)
    fuse(model)
    assert FUSED not in str(model(torch.randn(3, 6)).grad_fn.next_functions)


@pytest.mark.parametrize(("dtype", "fused"), [("bfloat16", True), ("float32", False)])
def test_a_policy_in_bfloat16_is_loaded_so(dtype: str, fused: bool, tmp_path: Path) -> None:
    config = LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    settings = PolicySettings(adapter="lora", lora_rank=2)
    policy = load_policy(str(tmp_path), None, settings, dtype=dtype, device=torch.device("cpu"), segments=True)
    x = torch.randn(3, 16).to(torch.bfloat16 if fused else torch.float32)
    layer = policy.decoder.body.layers[0].mlp.gate_proj
    with policy.decoder.precision():
        assert (FUSED in str(layer(x).grad_fn)) == fused
    with torch.no_grad(), policy.decoder.in_float32(torch.bfloat16):  # as the canary computes
        wide = policy.decoder.forward(torch.arange(9), 0, [])[0]
    narrow = policy.decoder.forward(torch.arange(9), 0, [])[0].detach()
    assert float((wide - narrow).norm() / wide.norm()) < 0.02
