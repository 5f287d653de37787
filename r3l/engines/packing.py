"""How the new tokens of one engine step are packed: in the order of the segment tree, so that requests that share a
segment are neighbours, and which pieces of stored tokens they share.

Shapes: H key/value heads, N new tokens, T stored tokens, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from r3l.engines.segments import Segment

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
    store = next(part.store_L2HTD for part, _ in feed.segment.chain() if part.store_L2HTD is not None)
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
