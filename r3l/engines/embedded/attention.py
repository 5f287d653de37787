"""Attention of one engine step over the segment tree, called as transformers calls an attention function.

All new tokens of a step are packed into one sequence, ordered depth first, so that the requests which share a segment
are neighbours. On a CPU with a C compiler one compiled function attends for all of them, without padding and without a
copy of what is stored (compiled_attention.py). Elsewhere torch's fused attention does: once for all short feeds, side
by side, and once for each long one (a first prompt), which stands behind the others.

Shapes: H key/value heads, G query heads for each, N new tokens, F short feeds, W new tokens of each, T stored tokens.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from r3l.engines.embedded.packing import Feed, Padded, Step, stored_parts


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
    elif step.padded:
        short = slice(None, step.short)
        short_query, short_key, short_value = query_HGND[:, :, short], key[0, :, short], value[0, :, short]
        parts.append(
            _short(
                step.padded, module.layer_idx, short_query.to(wide), short_key.to(wide), short_value.to(wide), scaling
            ).to(query.dtype)
        )
    for feed, mask in step.long:
        parts.append(_long(feed, mask, module.layer_idx, query_HGND, key[0], value[0], scaling))
    # tokens that fill the step up to a usual number: nobody reads their result
    if count > step.tokens:
        parts.append(query.new_zeros(count - step.tokens, heads, query_HGND.shape[1], size))
    out_NHGD = torch.cat(parts) if len(parts) > 1 else parts[0]
    return out_NHGD.reshape(1, count, -1, size), None


def _short(
    padded: Padded, layer: int, query_HGND: Tensor, keys_HND: Tensor, values_HND: Tensor, scaling: float
) -> Tensor:
    """Attend for the short feeds, side by side: (N, H, G, D)."""
    heads, group, count, size = query_HGND.shape
    feeds, rows, _ = padded.visible_FRS.shape
    width = rows // group

    def side_by_side(packed_XND: Tensor) -> Tensor:  # (F, X, W, D)
        if count == feeds * width:  # none has fewer than the others: the usual step, a token of each
            spread = packed_XND
        else:
            spread = packed_XND.new_zeros(len(packed_XND), feeds * width, size)
            spread[:, padded.rows_N] = packed_XND
        return spread.view(-1, feeds, width, size).transpose(0, 1)

    keys_FHSD, values_FHSD = side_by_side(keys_HND), side_by_side(values_HND)
    if padded.stored_L2FHTD is not None:
        keys, values = padded.stored_L2FHTD[layer].to(query_HGND.dtype)
        keys_FHSD, values_FHSD = torch.cat([keys, keys_FHSD], 2), torch.cat([values, values_FHSD], 2)
    # the query heads of a key head stand one below the other, as further rows
    query = side_by_side(query_HGND.reshape(heads * group, count, size)).reshape(feeds, heads, rows, size)
    out = F.scaled_dot_product_attention(
        query, keys_FHSD, values_FHSD, attn_mask=padded.visible_FRS[:, None], scale=scaling
    )
    out_NHGD = out.view(feeds, heads, group, width, size).permute(0, 3, 1, 2, 4).reshape(-1, heads, group, size)
    return out_NHGD if count == feeds * width else out_NHGD[padded.rows_N]


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
    # from the leaf to the root, each part in front of what is there: positions rise from left to right
    for stored_L2HTD, _, _ in stored_parts(feed):
        parts.insert(0, (stored_L2HTD[layer, 0], stored_L2HTD[layer, 1]))
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
