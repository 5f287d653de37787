"""The backward pass of attention in bfloat16 as matrix products, on processors with AMX: torch's fused kernel takes six
times its forward pass there. 200 queries on 700 keys, 9 query heads, 3 key heads of width 64: 6.6 ms instead of 10.

The factors are bfloat16 numbers held as float32, and oneDNN may round to bfloat16 inside a product, so that scores and
sums are float32 and only P and dS are rounded, once: the error against double precision is below that of the kernel.

Shapes: H key heads, G query heads of each, L tokens of the segment, E of its path and itself, D head width; a block has
B tokens. Queries are laid out [H, L, G, D], so that a block of all query heads of a key head is one matrix.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

PRODUCTS: Any = getattr(torch.backends.mkldnn, "matmul", None)  # settings of oneDNN's products
AVAILABLE: bool = PRODUCTS is not None and getattr(torch.cpu, "_is_amx_tile_supported", bool)()
BLOCK = 128  # tokens, so that scores stay near the processor


def suits(query: Tensor) -> bool:
    return query.dtype == torch.bfloat16 and AVAILABLE


def slopes(
    slope: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute d/dquery, d/dkey and d/dvalue.

    Args:
        slope: d/dout, [1, H * G, L, D] as query and out.
        key: [1, H, E, D] as value; the last L are the segment's own, which is causal.
        lse: log-sum-exps of the scaled scores [1, H * G, L].
    """
    heads, length, width = key.shape[1], query.shape[2], key.shape[2]
    groups, past = query.shape[1] // heads, width - length
    q_HLGD, slope_HLGD, out_HLGD = (_by_token(tensor, heads) for tensor in (query, slope, out))
    q_HLGD.mul_(scale)
    # softmax's backward needs sum_j P dP, which equals sum_d dout out: no second pass over the scores
    delta_HLG1 = (slope_HLGD * out_HLGD).sum(-1, keepdim=True)
    lse_HLG1 = _by_token(lse[..., None], heads)
    k_HED, v_HED = key[0].float(), value[0].float()
    dq_HLGD, dk_HED, dv_HED = torch.empty_like(q_HLGD), torch.zeros_like(k_HED), torch.zeros_like(v_HED)
    with _rounded_products():
        for h in range(heads):
            for first in range(0, length, BLOCK):
                stop = min(length, first + BLOCK)
                visible, block = past + stop, slice(first, stop)
                q, dout, dq, lse_1, delta_1 = (
                    tensor[h, block].flatten(0, 1) for tensor in (q_HLGD, slope_HLGD, dq_HLGD, lse_HLG1, delta_HLG1)
                )
                # exp(scores - lse) is P itself, without the softmax's maximum and sum
                p = (q @ k_HED[h, :visible].T).sub_(lse_1).exp_()
                # the path is seen whole; within the segment a query sees no key after its own token
                p.view(stop - first, groups, visible)[:, :, past + first :].transpose(0, 1).tril_()
                dv_HED[h, :visible].addmm_(p.T, dout)
                # d loss / d scores = P (dP - delta), in place: the block is the largest thing in memory
                ds = (dout @ v_HED[h, :visible].T).sub_(delta_1).mul_(p)
                torch.mm(ds, k_HED[h, :visible], out=dq)
                dk_HED[h, :visible].addmm_(ds.T, q)
    dq = dq_HLGD.mul_(scale).transpose(1, 2).flatten(0, 1)
    return dq[None].to(query.dtype), dk_HED[None].to(key.dtype), dv_HED[None].to(value.dtype)


def _by_token(tensor: Tensor, heads: int) -> Tensor:
    """[1, H * G, L, D] to float32 [H, L, G, D]."""
    by_token: Tensor = tensor[0].unflatten(0, (heads, -1)).transpose(1, 2)
    return by_token.to(torch.float32, memory_format=torch.contiguous_format)


@contextmanager
def _rounded_products() -> Iterator[None]:
    """Let products of float32 round their factors to bfloat16."""
    before, PRODUCTS.fp32_precision = PRODUCTS.fp32_precision, "bf16"
    try:
        yield
    finally:
        PRODUCTS.fp32_precision = before
