"""Attention of a segment to its path and itself on a CPU, without a mask and without repeating shared keys.

The path is seen whole and the segment causally, so torch's fused kernel runs once for each and the two results are
joined by their log-sum-exps. Its backward kernel recomputes exp(scores - lse), so with the joint lse and output it
gives each part's exact gradient (the identity that ring attention rests on); in bfloat16 `attention_slopes` does, where
the processor has AMX. Query heads that share a key head are folded into its queries.

Shapes: Q query heads, H key heads, L tokens of the segment, P of the path, D head width.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from r3l.training.trie.attention_slopes import slopes, suits

NAME = "r3l_path"
FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}  # their attention is softmax(q k / sqrt(d)) v and no more
_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    paths: list[list[tuple[Tensor, Tensor]]],
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute attention as transformers calls it: query [1, Q, L, D], key and value [1, H, L, D] of the segment -> [1,
    L, Q, D].

    Args:
        paths: of each layer the keys and values [1, H, tokens, D] of the segments before this one.
    """
    path = paths[module.layer_idx]
    past_key = torch.cat([k for k, _ in path], 2) if path else key[:, :, :0]
    past_value = torch.cat([v for _, v in path], 2) if path else value[:, :, :0]
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    out: Tensor = _PathAttention.apply(  # type: ignore[no-untyped-call, unused-ignore]
        *(tensor.to(dtype) for tensor in (query, key, value, past_key, past_value)), scaling
    )
    return out.transpose(1, 2), None


class _PathAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, past_key: Tensor, past_value: Tensor, scale: float
    ) -> Tensor:
        repeats = query.shape[1] // key.shape[1]
        out: Tensor
        out, lse = _forward(query, _repeat(key, repeats), _repeat(value, repeats), 0.0, True, scale=scale)
        if past_key.shape[2]:
            past_out, past_lse = _forward(_fold(query, repeats), past_key, past_value, 0.0, False, scale=scale)
            past_out, past_lse = past_out.reshape(query.shape), past_lse.reshape(lse.shape)
            # two softmaxes over disjoint keys: each output counts by its share of the joint normaliser
            joint = torch.logaddexp(lse, past_lse)
            out = (out * (lse - joint).exp()[..., None] + past_out * (past_lse - joint).exp()[..., None]).to(
                query.dtype
            )
            lse = joint
        ctx.save_for_backward(query, key, value, past_key, past_value, out, lse)
        ctx.scale, ctx.repeats = scale, repeats
        return out

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, past_key, past_value, out, lse = ctx.saved_tensors
        n, scale, slope = ctx.repeats, ctx.scale, outer[0]
        if suits(query):
            past = past_key.shape[2]
            keys, values = (torch.cat(pair, 2) for pair in ((past_key, key), (past_value, value)))
            dq, dk, dv = slopes(slope, query, keys, values, out, lse, scale)
            return dq, dk[:, :, past:], dv[:, :, past:], dk[:, :, :past], dv[:, :, :past], None
        dq, dk, dv = _backward(slope, query, _repeat(key, n), _repeat(value, n), out, lse, 0.0, True, scale=scale)
        # query heads that share a key head have repeated it: its gradient is their sum
        dk, dv = (gradient.unflatten(1, (-1, n)).sum(2) for gradient in (dk, dv))
        if not past_key.shape[2]:
            return dq, dk, dv, None, None, None
        folds = [_fold(tensor, n) for tensor in (slope, query, out)]
        past_dq, past_dk, past_dv = _backward(
            folds[0],
            folds[1],
            past_key,
            past_value,
            folds[2],
            _fold(lse[..., None], n)[..., 0],
            0.0,
            False,
            scale=scale,
        )
        return dq + past_dq.reshape(dq.shape), dk, dv, past_dk, past_dv, None


def _repeat(tensor: Tensor, repeats: int) -> Tensor:
    return tensor if repeats == 1 else tensor.repeat_interleave(repeats, 1)


def _fold(tensor: Tensor, repeats: int) -> Tensor:
    """[1, Q, L, D] to [1, H, Q / H * L, D]."""
    return tensor if repeats == 1 else tensor.unflatten(1, (-1, repeats)).flatten(2, 3)


AttentionInterface.register(NAME, attend)
