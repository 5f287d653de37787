"""Attention of one engine step over the segment tree, as an attention function for transformers.

All new tokens of a step are packed into one sequence, ordered depth first, so that the requests which share a segment
are neighbours: a shared segment is then one batched product for all of them (grouped-query heads included), whether
they decode one token or prefill some. There is no padding between requests and no copy of what is stored. On a CPU with
a C compiler all that is one compiled function (compiled_attention.py); what follows is for the others. Long feeds (a
first prompt) stand behind the others, and each goes through torch's fused attention, which never holds all scores.

Shapes: H key/value heads, G query heads for each, N new tokens, R = N * G query rows, T stored tokens, W own tokens.
Scores (H, R, W + T): columns 0..W are a request's own new tokens, then the stored ones by position.
"""

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from r3l.engines.embedded.packing import Feed, Step

NAME = "r3l_segments"


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    step: Step,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute attention as transformers calls it: query (1, H*G, N, D), key and value (1, H, N, D) -> (1, N, H*G,
    D)."""
    wide = torch.float32 if query.device.type == "cpu" else query.dtype  # on a CPU small products are faster in float32
    heads, count, size = key.shape[1:]
    query_HGND = query[0].view(heads, -1, count, size)
    step.fresh.append((key[0], value[0]))
    parts = []
    if step.kernel:
        parts.append(
            step.kernel.attend(query[0], key[0], value[0], step.table, step.counts, module.layer_idx, scaling)
            .view(step.short, heads, -1, size)
            .to(query.dtype)
        )
    elif step.short:
        parts.append(
            _short(step, module.layer_idx, query_HGND.to(wide) * scaling, key[0].to(wide), value[0].to(wide)).to(
                query.dtype
            )
        )
    for feed, mask in step.long:
        parts.append(_long(feed, mask, module.layer_idx, query_HGND, key[0], value[0], scaling))
    # tokens that fill the step up to a usual number: nobody reads their result
    if count > step.tokens:
        parts.append(query.new_zeros(count - step.tokens, heads, query_HGND.shape[1], size))
    out_NHGD = torch.cat(parts) if len(parts) > 1 else parts[0]
    return out_NHGD.reshape(1, count, -1, size), None


def _short(step: Step, layer: int, query_HGND: Tensor, keys_HND: Tensor, values_HND: Tensor) -> Tensor:
    """Attend for the short feeds by the pieces that they share: (N, H, G, D)."""
    heads, group, _, size = query_HGND.shape
    count = step.short
    keys_HND, values_HND = keys_HND[:, :count], values_HND[:, :count]
    query_HRD = query_HGND[:, :, :count].transpose(1, 2).reshape(heads, count * group, size).contiguous()
    # one softmax over own and stored tokens together, then the values are added up piece by piece
    weights = _scores(step, layer, query_HRD, keys_HND, group).softmax(-1)
    out_HRD = _own_values(step, weights, values_HND, group)
    # the requests that share a piece are neighbours in the packed order, so that their rows are one slice
    for piece in step.pieces:
        rows, columns = (
            slice(piece.first * group, piece.last * group),
            slice(step.own + piece.low, step.own + piece.high),
        )
        out_HRD[:, rows] += torch.bmm(weights[:, rows, columns], piece.values_HTD[layer].to(weights.dtype))
    return out_HRD.view(heads, count, group, size).transpose(0, 1)


def _long(
    feed: Feed,
    mask: Tensor | None,
    layer: int,
    query_HGND: Tensor,
    keys_HND: Tensor,
    values_HND: Tensor,
    scaling: float,
) -> Tensor:
    """Attend for one long feed: (N, H, G, D)."""
    new = slice(feed.first, feed.first + feed.count)
    parts = [(keys_HND[:, new], values_HND[:, new])]
    until = feed.length
    # from the leaf to the root, each part in front of what is there: positions rise from left to right
    for part, end in feed.segment.chain():
        count = min(end, until) - part.start
        if count > 0 and part.store_L2HTD is not None:
            cached_2HTD = part.store_L2HTD[layer, :, :, :count]
            parts.insert(0, (cached_2HTD[0], cached_2HTD[1]))
        until = min(until, part.start)
    all_keys, all_values = (torch.cat(side, 1)[:, None] for side in zip(*parts, strict=True))
    spread = (*query_HGND.shape[:2], feed.length + feed.count, query_HGND.shape[3])
    out_HGND = F.scaled_dot_product_attention(
        query_HGND[:, :, new],
        all_keys.expand(spread),
        all_values.expand(spread),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
    )
    return out_HGND.permute(2, 0, 1, 3)


def _scores(step: Step, layer: int, query_HRD: Tensor, keys_HND: Tensor, group: int) -> Tensor:
    heads, rows, size = query_HRD.shape
    own = step.own
    scores = query_HRD.new_full((heads, rows, own + step.cached), -torch.inf)
    # a feed of one token sees only itself among the new ones: no product of matrices is needed
    scores[:, :, 0] = (query_HRD.view(heads, -1, group, size) * keys_HND[:, :, None]).sum(-1).view(heads, rows)
    for feed in step.feeds:
        if feed.count > 1 and feed.first < step.short:
            part = slice(feed.first * group, (feed.first + feed.count) * group)
            product = torch.bmm(query_HRD[:, part], keys_HND[:, feed.first : feed.first + feed.count].transpose(1, 2))
            scores[:, part, : feed.count] = product.masked_fill_(_later(feed.count, group, product.device), -torch.inf)
    for piece in step.pieces:
        part = slice(piece.first * group, piece.last * group)
        scores[:, part, own + piece.low : own + piece.high] = torch.bmm(
            query_HRD[:, part], piece.keys_HDT[layer].to(query_HRD.dtype)
        )
    return scores


@lru_cache(maxsize=256)
def _later(count: int, group: int, device: torch.device) -> Tensor:
    """Mark where a query row (token * group + head) may not look: own tokens after it. (R, W)"""
    return torch.ones(count, count, dtype=torch.bool, device=device).triu(1).repeat_interleave(group, 0)


def _own_values(step: Step, weights: Tensor, values_HND: Tensor, group: int) -> Tensor:
    heads, count, size = values_HND.shape
    out = (
        (weights[:, :, :1].reshape(heads, count, group, 1) * values_HND[:, :, None])
        .reshape(heads, count * group, size)
        .contiguous()
    )
    for feed in step.feeds:
        if feed.count > 1 and feed.first < step.short:
            part = slice(feed.first * group, (feed.first + feed.count) * group)
            out[:, part] = torch.bmm(
                weights[:, part, : feed.count], values_HND[:, feed.first : feed.first + feed.count]
            )
    return out


AttentionInterface.register(NAME, attend)
