"""How the new tokens of one engine step are packed: in the order of the segment tree, so that requests that share a
segment are neighbours, and which pieces of stored tokens they share.

Shapes: H key/value heads, N new tokens, T stored tokens, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from r3l.engines.embedded.compiled_attention import CompiledAttention
from r3l.engines.embedded.segments import Segment

LONG = 96  # new tokens of one feed from which the fused attention is faster (measured on a CPU)
FEED_SCORES = 2**21  # scores of one feed and layer that may be held: 8 MB in float32


@dataclass(slots=True)
class Piece:
    """Stored tokens [low, high) of a segment that the new tokens [first, last) all attend to."""

    first: int
    last: int
    low: int
    high: int
    segment: Segment
    keys_HDT: Sequence[Tensor] = ()  # one a layer
    values_HTD: Sequence[Tensor] = ()

    def open(self) -> None:
        """Make the tensors that torch's products read."""
        store, start = self.segment.store_L2HTD, self.segment.start
        assert store is not None
        part = store[:, :, :, self.low - start : self.high - start]
        self.keys_HDT, self.values_HTD = part[:, 0].transpose(2, 3).unbind(0), part[:, 1].unbind(0)

    def address(self, group: int) -> tuple[int, ...]:
        """Lay out the piece as compiled_attention.c reads it, with `group` query rows per token."""
        store, offset = self.segment.store_L2HTD, self.low - self.segment.start
        assert store is not None
        first_key = store.data_ptr() + offset * store.shape[4] * store.element_size()
        return first_key, store.shape[3], self.high - self.low, self.first * group, self.last * group, self.low


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
    pieces: list[Piece]  # of the short feeds
    # what attends for the short feeds, by the tables that follow; else torch does
    kernel: CompiledAttention | None = None
    table: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 6), np.int64))  # `pieces`
    # first place, tokens and position of the short feeds
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    short: int = 0
    long: list[tuple[Feed, Tensor | None]] = field(default_factory=list)  # with its mask (new tokens, T + new tokens)
    fresh: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # a layer: keys and values (H, N, D)
    own: int = 0  # W
    cached: int = 0  # T

    @property
    def tokens(self) -> int:
        return self.feeds[-1].first + self.feeds[-1].count if self.feeds else 0


def plan(feeds: Sequence[Feed], heads: int, group: int = 1, kernel: CompiledAttention | None = None) -> Step:
    """Order the feeds depth first and find the pieces of stored tokens that they share; long feeds go last.

    Args:
        heads: query heads, `group` of them for each key/value head.
        kernel: what attends for the short feeds, where there is such a thing.
    """
    short = [feed for feed in feeds if kernel or feed.count <= _limit(feeds, heads)]
    step = Step(
        [],
        [],
        own=max((feed.count for feed in short), default=0),
        cached=max((feed.length for feed in short), default=0),
    )
    owners = {feed.segment: feed for feed in short}
    tops, below = _branches(owners)
    for top in tops:
        _descend(top, below, owners, step)
    step.short = step.tokens
    _prepare(step, group, kernel)
    # long feeds attend by themselves: no piece is shared with them, and they stand last
    for feed in feeds:
        if feed.segment not in owners:
            feed.first = step.tokens
            step.feeds.append(feed)
            step.long.append((feed, _lower_right(feed)))
    return step


def _limit(feeds: Sequence[Feed], heads: int) -> int:
    """Choose the tokens of a feed from which torch's fused attention takes it. The compiled one takes all: whether a
    prompt comes in one piece or in many must not show."""
    longest = max(feed.length for feed in feeds)
    return max(1, min(LONG, FEED_SCORES // (heads * (longest + LONG))))


def _prepare(step: Step, group: int, kernel: CompiledAttention | None) -> None:
    if kernel is None:
        for piece in step.pieces:
            piece.open()
    elif step.feeds:
        step.kernel = kernel
        step.counts = np.array([(feed.first, feed.count, feed.length) for feed in step.feeds], np.int64)
        if step.pieces:
            in_order = sorted(step.pieces, key=lambda piece: piece.low)  # in which each row adds their values up
            step.table = np.array([piece.address(group) for piece in in_order], np.int64)


def _branches(owners: dict[Segment, Feed]) -> tuple[list[Segment], dict[Segment, list[Segment]]]:
    """Find the part of the tree above the feeds: its top segments, and the children of each that lead to a feed."""
    tops: list[Segment] = []
    below: dict[Segment, list[Segment]] = {}
    visited: set[Segment] = set()
    for owner in owners:
        segment = owner
        # from each feed towards the root, until a path that is there already: every segment is met once
        while segment not in visited:
            visited.add(segment)
            parent = segment.parent
            assert parent is not None
            # the root holds no tokens: below it a tree of its own begins
            if parent.parent is None:
                tops.append(segment)
                break
            below.setdefault(parent, []).append(segment)
            segment = parent
    return tops, below


def _lower_right(feed: Feed) -> Tensor | None:
    """Mark which of the stored and new tokens each new token sees; None where nothing is stored: then it is plainly
    causal."""
    if feed.length == 0:
        return None
    store = next(part.store_L2HTD for part, _ in feed.segment.chain() if part.store_L2HTD is not None)
    return torch.ones(feed.count, feed.length + feed.count, dtype=torch.bool, device=store.device).tril(feed.length)


def _descend(segment: Segment, below: dict[Segment, list[Segment]], owners: dict[Segment, Feed], step: Step) -> int:
    """Place the feeds at and below `segment`, those that read most of it first; the result is the place after them."""
    first = place = step.tokens
    reads: list[tuple[int, int]] = []  # (position read up to, place after the feeds that do)
    feed = owners.get(segment)
    if feed is not None:
        feed.first = place
        step.feeds.append(feed)
        place += feed.count
        reads.append((feed.length, place))
    # the later a child leaves this segment, the more of it its feeds read
    for child in sorted(below.get(segment, ()), key=lambda child: -child.start):
        place = _descend(child, below, owners, step)
        reads.append((child.start, place))
    # those that read up to `high` are the first ones: between two forks one piece serves all that read on
    for index, (high, last) in enumerate(reads):
        low = reads[index + 1][0] if index + 1 < len(reads) else segment.start
        if high > low:
            step.pieces.append(Piece(first, last, low, high, segment))
    return place
