"""Attention of one engine step over the segment tree, as an attention function of transformers.

All new tokens of a step are packed into one sequence, ordered depth first, so that the requests which share a segment
are neighbours: a shared segment is then one batched product for all of them (grouped-query heads included), whether
they decode one token or prefill some. There is no padding between requests and no copy of what is stored. Long feeds
(a first prompt) stand behind the others, and each goes through torch's fused attention, which never holds all scores.

Shapes: H key/value heads, G query heads for each, N new tokens, R = N * G query rows, T stored tokens, W own tokens.
Scores (H, R, W + T): columns 0..W are a request's own new tokens, then the stored ones by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from r3l.engines.segments import Segment

NAME = "r3l_segments"
LONG = 96  # new tokens of one feed from which the fused attention is faster (measured on a CPU)
FEED_SCORES = 2**21  # scores of one feed and layer that may be held: 8 MB in float32


@dataclass(slots=True)
class Piece:
    """Stored tokens [low, high) that the new tokens [first, last) all attend to. One tensor a layer."""

    first: int
    last: int
    low: int
    high: int
    keys_HDT: Sequence[Tensor]
    values_HTD: Sequence[Tensor]


@dataclass(slots=True)
class Feed:
    """A request's part of a step: `count` new tokens behind what `segment` holds up to `length`."""

    segment: Segment
    count: int
    length: int
    first: int = 0  # place of its tokens in the packed step


@dataclass(slots=True)
class Step:
    """One forward pass: feeds in depth-first order, their pieces, and the keys and values that it computes.
    The long feeds come last in `feeds`; `short` tokens stand before them."""

    feeds: list[Feed]
    pieces: list[Piece]
    short: int = 0
    long: list[tuple[Feed, Tensor | None]] = field(default_factory=list)  # with its mask (new tokens, T + new tokens)
    fresh: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # a layer: keys and values (H, N, D)
    own: int = 0  # W
    stored: int = 0  # T

    @property
    def tokens(self) -> int:
        return self.feeds[-1].first + self.feeds[-1].count if self.feeds else 0



def plan(feeds: Sequence[Feed], heads: int) -> Step:
    """Order the feeds depth first and find the pieces of stored tokens that they share; long feeds go last."""
    stored = max(feed.length for feed in feeds)
    limit = max(1, min(LONG, FEED_SCORES // (heads * (stored + LONG))))
    short = [feed for feed in feeds if feed.count <= limit]
    step = Step([], [], own=max((feed.count for feed in short), default=0), stored=max((feed.length for feed in short), default=0))
    owners = {feed.segment: feed for feed in short}
    tops, below = _branches(owners)
    for top in tops:
        _descend(top, below, owners, step)
    step.short = step.tokens
    for feed in feeds:
        if feed.count > limit:
            feed.first = step.tokens
            step.feeds.append(feed)
            step.long.append((feed, _lower_right(feed)))
    return step


def _branches(owners: dict[Segment, Feed]) -> tuple[list[Segment], dict[Segment, list[Segment]]]:
    """The part of the tree above the feeds: its top segments, and the children of each that lead to a feed."""
    tops: list[Segment] = []
    below: dict[Segment, list[Segment]] = {}
    seen: set[Segment] = set()
    for owner in owners:
        segment = owner
        while segment not in seen:
            seen.add(segment)
            parent = segment.parent
            assert parent is not None
            if parent.parent is None:
                tops.append(segment)
                break
            below.setdefault(parent, []).append(segment)
            segment = parent
    return tops, below


def _lower_right(feed: Feed) -> Tensor | None:
    """Which of the stored and new tokens each new token sees; None where nothing is stored: then it is plainly causal."""
    if feed.length == 0:
        return None
    store = feed.segment.store_L2HTD if feed.segment.store_L2HTD is not None else next(
        part.store_L2HTD for part, _ in feed.segment.chain() if part.store_L2HTD is not None)
    return torch.ones(feed.count, feed.length + feed.count, dtype=torch.bool, device=store.device).tril(feed.length)


def _descend(segment: Segment, below: dict[Segment, list[Segment]], owners: dict[Segment, Feed], step: Step) -> int:
    """Place the feeds at and below `segment`; returns the place after them. Those that read most of it come first."""
    first = place = step.tokens
    reads: list[tuple[int, int]] = []  # (position read up to, place after the feeds that do)
    feed = owners.get(segment)
    if feed is not None:
        feed.first = place
        step.feeds.append(feed)
        place += feed.count
        reads.append((feed.length, place))
    for child in sorted(below.get(segment, ()), key=lambda child: -child.start):
        place = _descend(child, below, owners, step)
        reads.append((child.start, place))
    for index, (high, last) in enumerate(reads):
        low = reads[index + 1][0] if index + 1 < len(reads) else segment.start
        if high > low:
            step.pieces.append(_piece(segment, first, last, low, high))
    return place


def _piece(segment: Segment, first: int, last: int, low: int, high: int) -> Piece:
    assert segment.store_L2HTD is not None
    part = segment.store_L2HTD[:, :, :, low - segment.start:high - segment.start]
    return Piece(first, last, low, high, part[:, 0].transpose(2, 3).unbind(0), part[:, 1].unbind(0))


def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *, scaling: float,
           step: Step, **_: Any) -> tuple[Tensor, None]:
    """transformers' attention function: query (1, H*G, N, D), key and value (1, H, N, D) -> (1, N, H*G, D)."""
    dtype, wide = query.dtype, torch.float32 if query.device.type == "cpu" else query.dtype
    keys_HND, values_HND = key[0].to(wide), value[0].to(wide)
    heads, count, size = keys_HND.shape
    query_HGND = (query[0].to(wide) * scaling).view(heads, -1, count, size)
    step.fresh.append((keys_HND, values_HND))
    parts = [_short(step, module.layer_idx, query_HGND, keys_HND, values_HND)] if step.short else []
    for feed, mask in step.long:
        parts.append(_long(feed, mask, module.layer_idx, query_HGND, keys_HND, values_HND))
    out_NHGD = torch.cat(parts) if len(parts) > 1 else parts[0]
    return out_NHGD.reshape(1, count, -1, size).to(dtype), None


def _short(step: Step, layer: int, query_HGND: Tensor, keys_HND: Tensor, values_HND: Tensor) -> Tensor:
    """(N, H, G, D) of the short feeds, by the pieces that they share."""
    heads, group, _, size = query_HGND.shape
    count = step.short
    keys_HND, values_HND = keys_HND[:, :count], values_HND[:, :count]
    query_HRD = query_HGND[:, :, :count].transpose(1, 2).reshape(heads, count * group, size)
    weights = _scores(step, layer, query_HRD, keys_HND, group).softmax(-1)
    out_HRD = _own_values(step, weights, values_HND, group)
    for piece in step.pieces:
        rows, columns = slice(piece.first * group, piece.last * group), slice(step.own + piece.low, step.own + piece.high)
        out_HRD[:, rows] += torch.bmm(weights[:, rows, columns], piece.values_HTD[layer])
    return out_HRD.view(heads, count, group, size).transpose(0, 1)


def _long(feed: Feed, mask: Tensor | None, layer: int, query_HGND: Tensor, keys_HND: Tensor, values_HND: Tensor) -> Tensor:
    """(N, H, G, D) of one long feed."""
    new = slice(feed.first, feed.first + feed.count)
    keys, values = [keys_HND[:, new]], [values_HND[:, new]]
    until = feed.length
    segment: Segment | None = feed.segment
    while until > 0:
        assert segment is not None
        if segment.store_L2HTD is not None and until > segment.start:
            stored = segment.store_L2HTD[layer, :, :, :until - segment.start]
            keys.insert(0, stored[0])
            values.insert(0, stored[1])
        until, segment = min(until, segment.start), segment.parent
    spread = (query_HGND.shape[0], query_HGND.shape[1], feed.length + feed.count, query_HGND.shape[3])
    out_HGND = F.scaled_dot_product_attention(
        query_HGND[:, :, new], torch.cat(keys, 1)[:, None].expand(spread), torch.cat(values, 1)[:, None].expand(spread),
        attn_mask=mask, is_causal=mask is None, scale=1.0)
    return out_HGND.permute(2, 0, 1, 3)


def _scores(step: Step, layer: int, query_HRD: Tensor, keys_HND: Tensor, group: int) -> Tensor:
    heads, rows, size = query_HRD.shape
    own = step.own
    scores = query_HRD.new_full((heads, rows, own + step.stored), -torch.inf)
    scores[:, :, 0] = (query_HRD.view(heads, -1, group, size) * keys_HND[:, :, None]).sum(-1).view(heads, rows)
    for feed in step.feeds:
        if feed.count > 1 and feed.first < step.short:
            part = slice(feed.first * group, (feed.first + feed.count) * group)
            product = torch.bmm(query_HRD[:, part], keys_HND[:, feed.first:feed.first + feed.count].transpose(1, 2))
            scores[:, part, :feed.count] = product.masked_fill_(_later(feed.count, group, product.device), -torch.inf)
    for piece in step.pieces:
        part = slice(piece.first * group, piece.last * group)
        scores[:, part, own + piece.low:own + piece.high] = torch.bmm(query_HRD[:, part], piece.keys_HDT[layer])
    return scores


def _later(count: int, group: int, device: torch.device) -> Tensor:
    """True where a query row (token * group + head) may not look: own tokens after it. (R, W)"""
    return torch.ones(count, count, dtype=torch.bool, device=device).triu(1).repeat_interleave(group, 0)


def _own_values(step: Step, weights: Tensor, values_HND: Tensor, group: int) -> Tensor:
    heads, count, size = values_HND.shape
    out = (weights[:, :, :1].reshape(heads, count, group, 1) * values_HND[:, :, None]).view(heads, count * group, size)
    for feed in step.feeds:
        if feed.count > 1 and feed.first < step.short:
            part = slice(feed.first * group, (feed.first + feed.count) * group)
            out[:, part] = torch.bmm(weights[:, part, :feed.count], values_HND[:, feed.first:feed.first + feed.count])
    return out


AttentionInterface.register(NAME, attend)
