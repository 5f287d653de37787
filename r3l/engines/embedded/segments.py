"""Keys and values of tokens as a tree: what two sequences share is computed and stored once.

    root ── system prompt, task 0, attempt 0's turns ...          a segment: ids, keys and values from `start` on
                         ├─ task 1, attempt 0's turns ...         a fork leaves its parent at any token, and reads
                         │        └─ the retry of that attempt    only what lies before its own `start`
                         └─ task 2 ...

The next turn of an episode continues its segment in place; a retry forks the base's at the pivot.
Shapes: L layers, 2 for keys and values, H key/value heads, T tokens (a buffer that grows by half), D head size.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

GROWTH = 1.5
SMALLEST = 64  # tokens of a new buffer
KEPT = 0.9  # share of the capacity that an eviction leaves, so that not every reply has to evict


class Segment:
    """A run of tokens behind `parent`'s tokens before `start`. `ids` may run ahead of the `filled` keys and values."""

    def __init__(self, parent: Segment | None, start: int) -> None:
        self.parent = parent
        self.start = start
        self.ids = array("q")
        self.filled = 0
        self.store_L2HTD: Tensor | None = None
        self.children: dict[Segment, None] = {}  # a set that keeps its order
        self.in_use = False  # a request appends to it
        self.used_at = 0
        self.counted = 0  # of its tokens, those in the tree's total

    @property
    def end(self) -> int:
        """Position after its last token."""
        return self.start + len(self.ids)

    @property
    def computed(self) -> int:
        """Position after its last token whose keys and values are there."""
        return self.start + self.filled

    def append(self, fresh_L2HTD: Tensor) -> None:
        """Store keys and values of the next tokens."""
        count = fresh_L2HTD.shape[3]
        store = self._room_for(self.filled + count, fresh_L2HTD)
        store[:, :, :, self.filled : self.filled + count] = fresh_L2HTD
        self.filled += count

    def shared_with(self, prompt: np.ndarray) -> int:
        """Find the position up to which `prompt` equals what this segment continues (at least `start`)."""
        length = min(len(self.ids), len(prompt) - self.start)
        if length <= 0:
            return self.start
        mine = np.frombuffer(self.ids, dtype=np.int64, count=length)
        differs = mine != prompt[self.start : self.start + length]
        first = int(differs.argmax())
        return self.start + (first if differs[first] else length)

    def chain(self) -> Iterator[tuple[Segment, int]]:
        """Yield itself and its ancestors, each with the position up to which it counts here."""
        segment, until = self, self.end
        while segment.parent is not None:
            yield segment, until
            segment, until = segment.parent, segment.start

    def _room_for(self, tokens: int, like: Tensor) -> Tensor:
        store = self.store_L2HTD
        if store is None or store.shape[3] < tokens:
            shape = list(like.shape)
            # grown by half: a long reply is copied a few times, not once per token
            shape[3] = max(SMALLEST, tokens if store is None else int(tokens * GROWTH))
            self.store_L2HTD = like.new_empty(shape)
            if store is not None:
                self.store_L2HTD[:, :, :, : self.filled] = store[:, :, :, : self.filled]
            store = self.store_L2HTD
        return store


class SegmentTree:
    """All segments of one policy. At most `capacity` tokens are kept beyond what running requests need."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.root = Segment(None, 0)
        self.clock = 0
        self.tokens = 0  # stored by requests that have ended
        self.evicted = 0

    def find(self, prompt: Sequence[int]) -> tuple[Segment, int]:
        """Find the segment that holds the longest stored prefix of `prompt`, and that prefix's length."""
        ids = np.asarray(prompt, dtype=np.int64)
        best, length, waiting = self.root, 0, [self.root]
        while waiting:
            segment = waiting.pop()
            prefix_length = segment.shared_with(ids)
            if prefix_length > length:
                best, length = segment, prefix_length
            # a child counts only if the prompt agrees up to where it leaves this segment, and in its first token
            waiting.extend(
                child
                for child in segment.children
                if child.start <= prefix_length
                and child.start < len(ids)
                and child.ids
                and child.ids[0] == ids[child.start]
            )
        return best, length

    def extend(self, segment: Segment, at: int) -> Segment:
        """Choose the segment that a request appends to: `segment` itself where it ends at `at` and is free, else a
        fork."""
        if segment.parent is None or segment.end != at or segment.in_use:
            parent, segment = segment, Segment(segment, at)
            parent.children[segment] = None
        segment.in_use = True
        return segment

    def release(self, segment: Segment) -> None:
        """Hand the segment back after a request; tokens that were never computed are dropped."""
        self.clock += 1
        segment.in_use = False
        del segment.ids[segment.filled :]
        self.tokens += segment.filled - segment.counted
        segment.counted = segment.filled
        # an ancestor is as fresh as its freshest reader, or eviction would take what a leaf stands on
        for part, _ in segment.chain():
            part.used_at = self.clock
        if not segment.ids and not segment.children:
            self._drop(segment)
        self._evict()

    def clear(self) -> None:
        """Drop all segments. They refer to their parents and children, and such cycles would keep their memory until
        Python's garbage collection."""
        for segment in self._all():
            segment.store_L2HTD = None
        self.root.children.clear()
        self.tokens = 0

    def _evict(self) -> None:
        """Drop the segments used longest ago, leaves first, until the tree fits its capacity."""
        # down to a share of the capacity, so that not every reply has to evict
        enough = self.capacity if self.tokens <= self.capacity else int(self.capacity * KEPT)
        while self.tokens > enough:
            # only leaves: what lies behind an inner segment can't be read without it
            leaves = [segment for segment in self._all() if not segment.children and not segment.in_use]
            if not leaves:
                return
            for segment in sorted(leaves, key=lambda leaf: leaf.used_at):
                if self.tokens <= enough:
                    return
                self.evicted += segment.counted
                self._drop(segment)

    def _drop(self, segment: Segment) -> None:
        assert segment.parent is not None
        del segment.parent.children[segment]
        self.tokens -= segment.counted

    def _all(self) -> Iterator[Segment]:
        waiting = list(self.root.children)
        while waiting:
            segment = waiting.pop()
            yield segment
            waiting.extend(segment.children)


def stack_layers(fresh: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Stack the keys and values of one step, a pair (H, N, D) per layer, as one (L, 2, H, N, D)."""
    return torch.stack([torch.stack(pair) for pair in fresh])
