"""How the new tokens of one engine step are packed: in the order of the segment tree, so that requests that share a
segment are neighbours, and which pieces of stored tokens they share.

Shapes: L layers, 2 for keys and values, H key/value heads, N new tokens, T stored tokens, D head size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from r3l.engines.embedded.compiled_attention import CompiledAttention
from r3l.engines.embedded.segments import Segment

LONG = 16  # new tokens of one feed above which it attends by itself where torch does: the others are padded to it


@dataclass(slots=True)
class Piece:
    """Stored tokens [low, high) of a segment that the new tokens [first, last) all attend to."""

    first: int
    last: int
    low: int
    high: int
    segment: Segment

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
class Padded:
    """The short feeds of a step side by side, for torch's fused attention: F feeds, padded to W new tokens and to S
    stored and new tokens together; R = G * W query rows for G query heads of a key head."""

    rows_N: Tensor  # of each new token, its row among the F * W
    stored_L2FHTD: Tensor | None  # T = S - W
    visible_FRS: Tensor


@dataclass(slots=True)
class Step:
    """One forward pass: feeds in depth-first order, their pieces, and the keys and values that it computes.
    The long feeds come last in `feeds`; `short` tokens stand before them."""

    feeds: list[Feed]
    pieces: list[Piece]  # of the short feeds
    # what attends for the short feeds, by the tables that follow; else torch does, by `padded`
    kernel: CompiledAttention | None = None
    table: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 6), np.int64))  # `pieces`
    # first place, tokens and position of the short feeds
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    short: int = 0
    long: list[tuple[Feed, Tensor | None]] = field(default_factory=list)  # with its mask (new tokens, T + new tokens)
    fresh: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # a layer: keys and values (H, N, D)
    padded: Padded | None = None

    @property
    def tokens(self) -> int:
        return self.feeds[-1].first + self.feeds[-1].count if self.feeds else 0


def plan(feeds: Sequence[Feed], group: int, kernel: CompiledAttention | None, device: torch.device) -> Step:
    """Order the feeds depth first and find the pieces of stored tokens that they share; long feeds go last.

    Args:
        group: query heads for each key/value head.
        kernel: what attends for the short feeds, where there is such a thing. It takes all feeds: whether a prompt
            comes in one piece or in many must not show.
        device: the model's.
    """
    short = [feed for feed in feeds if kernel or feed.count <= LONG]
    step = Step([], [])
    owners = {feed.segment: feed for feed in short}
    tops, below = _branches(owners)
    for top in tops:
        _descend(top, below, owners, step)
    step.short = step.tokens
    if kernel is None:
        step.padded = _side_by_side(step.feeds, group, device) if step.feeds else None
    elif step.feeds:
        _tabulate(step, group, kernel)
    # long feeds attend by themselves: no piece is shared with them, and they stand last
    for feed in feeds:
        if feed.segment not in owners:
            feed.first = step.tokens
            step.feeds.append(feed)
            step.long.append((feed, _lower_right(feed, device)))
    return step


def _tabulate(step: Step, group: int, kernel: CompiledAttention) -> None:
    step.kernel = kernel
    step.counts = np.array([(feed.first, feed.count, feed.length) for feed in step.feeds], np.int64)
    if step.pieces:
        in_order = sorted(step.pieces, key=lambda piece: piece.low)  # in which each row adds their values up
        step.table = np.array([piece.address(group) for piece in in_order], np.int64)


def _side_by_side(feeds: Sequence[Feed], group: int, device: torch.device) -> Padded:
    """Copy what each feed has stored next to the others: some copies a feed for all layers together. A product for
    each piece and layer would be thousands of calls a step, which keep a GPU waiting (H200, 24 layers, 32 replies:
    0.09 s a step)."""
    width = max(feed.count for feed in feeds)
    longest = max(feed.length for feed in feeds)
    longest += -(longest + width) % 8  # a fused kernel wants rows of the mask that begin at multiples of eight
    stored: Tensor | None = None
    for place, feed in enumerate(feeds):
        for part, start, stop in stored_parts(feed):
            if stored is None:
                layers, two, heads, _, size = part.shape
                stored = part.new_zeros(layers, two, len(feeds), heads, longest, size)
            stored[:, :, place, :, start:stop] = part
    counts, lengths = (
        torch.tensor([getattr(feed, name) for feed in feeds], device=device)[:, None, None]
        for name in ("count", "length")
    )
    own_W = torch.arange(width, device=device)
    is_stored = torch.arange(longest, device=device)[None, None] < lengths
    # a row of padding sees the first new token: a softmax over nothing is no number
    is_before = (own_W <= own_W[:, None])[None] & ((own_W < counts) | (own_W == 0))
    shape = (len(feeds), width)
    visible = torch.cat([is_stored.expand(*shape, -1), is_before.expand(*shape, -1)], 2)
    rows = [place * width + own for place, feed in enumerate(feeds) for own in range(feed.count)]
    if stored is None:
        visible = visible[:, :, longest:]
    return Padded(torch.tensor(rows, device=device), stored, visible.repeat(1, group, 1))


def stored_parts(feed: Feed) -> Iterator[tuple[Tensor, int, int]]:
    """Yield (keys and values, first position, position after the last) of what stands before a feed's new tokens, from
    the leaf to the root."""
    until = feed.length
    for part, end in feed.segment.chain():
        stop = min(end, until)
        if stop > part.start and part.store_L2HTD is not None:
            yield part.store_L2HTD[:, :, :, : stop - part.start], part.start, stop
        until = min(until, part.start)


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


def _lower_right(feed: Feed, device: torch.device) -> Tensor | None:
    """Mark which of the stored and new tokens each new token sees; None where nothing is stored: then it is plainly
    causal."""
    if feed.length == 0:
        return None
    return torch.ones(feed.count, feed.length + feed.count, dtype=torch.bool, device=device).tril(feed.length)


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
