"""The backward pass of attention as products, against double precision and beside torch's kernel."""

import pytest
import torch
from torch import Tensor

from r3l.training.trie import path_attention
from r3l.training.trie.attention_slopes import AVAILABLE, PRODUCTS, slopes

HEADS, GROUPS, WIDTH = 2, 3, 16


def drawn(length: int, past: int) -> list[Tensor]:
    """Query, key, value, key and value of the path, d/dout, in bfloat16."""
    torch.manual_seed(length + past)
    sizes = [(HEADS * GROUPS, length), *[(HEADS, length)] * 2, *[(HEADS, past)] * 2, (HEADS * GROUPS, length)]
    return [2 * torch.randn(1, heads, tokens, WIDTH).bfloat16() for heads, tokens in sizes]


def exact(query: Tensor, key: Tensor, value: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax attention and its log-sum-exps, of any dtype."""
    keys, values = (torch.cat(pair, 2).repeat_interleave(GROUPS, 1) for pair in ((past_key, key), (past_value, value)))
    scores = query @ keys.transpose(2, 3) * WIDTH**-0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(past_key.shape[2])
    scores = scores.masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


def errors(found: list[Tensor], wanted: list[Tensor]) -> list[float]:
    return [float((got - one).norm() / one.norm()) for got, one in zip(found, wanted, strict=True) if one.numel()]


@pytest.mark.parametrize(("length", "past"), [(300, 0), (300, 77), (128, 40), (129, 1), (1, 50), (5, 3)])
def test_the_gradient_is_as_near_to_double_precision_as_the_kernels(length, past, monkeypatch):
    *inputs, slope = drawn(length, past)
    wide = [tensor.double().requires_grad_() for tensor in inputs]
    out, _ = exact(*wide)
    wanted = list(torch.autograd.grad(out, wide, slope.double(), materialize_grads=True))
    found = {}
    for products in (True, False):
        monkeypatch.setattr(path_attention, "suits", lambda query, products=products: products)
        narrow = [tensor.clone().requires_grad_() for tensor in inputs]
        own = path_attention._PathAttention.apply(*narrow, WIDTH**-0.5)
        found[products] = list(torch.autograd.grad(own, narrow, slope, materialize_grads=True))
    assert [tensor.dtype for tensor in found[True]] == [torch.bfloat16] * 5
    for mine, kernels in zip(*(errors(found[products], wanted) for products in (True, False)), strict=True):
        assert mine <= max(1.2 * kernels, 3e-3), (mine, kernels)


def test_scores_that_no_token_may_see_are_left_out_however_large() -> None:
    query, key, value, past_key, past_value, slope = drawn(9, 4)
    key[:, :, -1] = 1000 * query[:, ::GROUPS, 0]  # the last token is seen by itself alone
    out, lse = exact(*(tensor.double() for tensor in (query, key, value, past_key, past_value)))
    keys, values = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
    found = slopes(slope, query, keys, values, out.bfloat16(), lse.float(), WIDTH**-0.5)
    assert all(bool(tensor.isfinite().all()) for tensor in found)


def test_products_of_float32_are_rounded_within_the_pass_alone() -> None:
    before = PRODUCTS.fp32_precision
    query, key, value, *_, slope = drawn(4, 0)
    out, lse = exact(*(tensor.float() for tensor in (query, key, value, key[:, :, :0], value[:, :, :0])))
    slopes(slope, query, key, value, out, lse, WIDTH**-0.5)
    assert PRODUCTS.fp32_precision == before


@pytest.mark.parametrize(("dtype", "taken"), [(torch.float32, False), (torch.bfloat16, AVAILABLE)])
def test_float32_keeps_the_kernel(dtype: torch.dtype, taken: bool) -> None:
    assert path_attention.suits(torch.zeros(1, dtype=dtype)) == taken
