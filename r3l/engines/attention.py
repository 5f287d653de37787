"""Attention of one engine step over the segment tree, as an attention function of transformers.

All new tokens of a step are packed into one sequence, ordered depth first, so that the requests which share a segment
are neighbours: a shared segment is then one batched product for all of them (grouped-query heads included), whether
they decode one token or prefill many. There is no padding between requests and no copy of what is stored.

Shapes: H key/value heads, G query heads for each, N new tokens, R = N * G query rows, T stored tokens, W own tokens.
Scores (H, R, W + T): columns 0..W are a request's own new tokens, then the stored ones by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from r3l.engines.segments import Segment

NAME = "r3l_segments"


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
    """One forward pass: feeds in depth-first order, their pieces, and the keys and values that it computes."""

    feeds: list[Feed]
    pieces: list[Piece]
    fresh: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # a layer: keys and values (H, N, D)

    @property
    def tokens(self) -> int:
        return self.feeds[-1].first + self.feeds[-1].count

    @property
    def own(self) -> int:
        return max(feed.count for feed in self.feeds)

    @property
    def stored(self) -> int:
        return max(feed.length for feed in self.feeds)


def plan(feeds: Sequence[Feed]) -> Step:
    """Order the feeds depth first and find the pieces of stored tokens that they share."""
    below: dict[Segment, list[Segment]] = {}
    owners = {feed.segment: feed for feed in feeds}
    seen: set[Segment] = set()
    tops: list[Segment] = []
    for feed in feeds:
        segment = feed.segment
        while segment not in seen:
            seen.add(segment)
            parent = segment.parent
            assert parent is not None
            if parent.parent is None:
                tops.append(segment)
                break
            below.setdefault(parent, []).append(segment)
            segment = parent
    step = Step([], [])
    for top in tops:
        _descend(top, below, owners, step)
    return step


def _descend(segment: Segment, below: dict[Segment, list[Segment]], owners: dict[Segment, Feed], step: Step) -> int:
    """Place the feeds at and below `segment`; returns the place after them. Those that read most of it come first."""
    first = place = step.tokens if step.feeds else 0
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
    group = query.shape[1] // heads
    query_HRD = (query[0].to(wide) * scaling).view(heads, group, count, size).transpose(1, 2).reshape(heads, count * group, size)
    step.fresh.append((keys_HND, values_HND))
    layer = module.layer_idx
    weights = _scores(step, layer, query_HRD, keys_HND, group).softmax(-1)
    out_HRD = _own_values(step, weights, values_HND, group)
    for piece in step.pieces:
        rows, columns = slice(piece.first * group, piece.last * group), slice(step.own + piece.low, step.own + piece.high)
        out_HRD[:, rows] += torch.bmm(weights[:, rows, columns], piece.values_HTD[layer])
    return out_HRD.view(heads, count, group, size).permute(1, 0, 2, 3).reshape(1, count, heads * group, size).to(dtype), None


def _scores(step: Step, layer: int, query_HRD: Tensor, keys_HND: Tensor, group: int) -> Tensor:
    heads, rows, size = query_HRD.shape
    own = step.own
    scores = query_HRD.new_full((heads, rows, own + step.stored), -torch.inf)
    scores[:, :, 0] = (query_HRD.view(heads, -1, group, size) * keys_HND[:, :, None]).sum(-1).view(heads, rows)
    for feed in step.feeds:
        if feed.count > 1:
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
        if feed.count > 1:
            part = slice(feed.first * group, (feed.first + feed.count) * group)
            out[:, part] = torch.bmm(weights[:, part, :feed.count], values_HND[:, feed.first:feed.first + feed.count])
    return out


AttentionInterface.register(NAME, attend)
