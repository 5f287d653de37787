"""Sequences as a token trie: every shared prefix once.

sequences      P+a+b    P+a+c    P+d              ids (depth-first)   P a b c d
segments       P -> a -> b,  a -> c,  P -> d      path(1) = positions of P, a, c in ids
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Segment:
    """A run of tokens without a branch: ids[start:stop], whose first token stands at position `depth` of its
    sequences."""

    parent: int  # index of a segment, -1: none
    start: int
    stop: int
    depth: int
    children: list[int] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        """Tokens that go through the model: a leaf's last token predicts nothing."""
        return self.stop - self.start - (0 if self.children else 1)


@dataclass(slots=True)
class Trie:
    """Segments in depth-first preorder, so a segment's parent and its start always come before it."""

    ids: Ints
    segments: list[Segment]
    spans: list[list[tuple[int, int]]]  # of each longest sequence: the ranges of ids that it runs through
    members: list[tuple[int, int]]  # of each sequence: the longest sequence that it begins, and its length

    def path(self, sequence: int) -> Ints:
        """List the positions in `ids` of the tokens of a sequence, in order."""
        longest, length = self.members[sequence]
        ranges = [np.arange(start, stop) for start, stop in self.spans[longest]] if length else [np.zeros(0, np.int64)]
        return np.concatenate(ranges)[:length]

    @property
    def tokens_computed(self) -> int:
        return sum(segment.inputs for segment in self.segments)


def build_trie(sequences: Sequence[NDArray[np.integer]], longest: int = 0) -> Trie:
    """Build the trie of some sequences of non-negative ids; segments above `longest` tokens are cut (0: never).

    Sorted sequences differ from their neighbours by one common prefix, which gives every branching point.
    """
    rows, members = _longest(sequences)
    shared_lengths = [0, *(common_prefix(a, b) for a, b in pairwise(rows))]
    builder = _Builder(longest)
    spans: list[list[tuple[int, int]]] = [[] for _ in rows]
    stack = [(0, len(rows), 0, -1)] if rows else []
    while stack:
        first, last, depth, parent = stack.pop()
        # the rows first..last share what all neighbours among them share: that is one segment
        end = min(shared_lengths[first + 1 : last], default=len(rows[first]))
        if end > depth:
            start, parent = builder.add(rows[first][depth:end], depth, parent)
            for i in range(first, last):
                spans[i].append((start, start + end - depth))
        if last - first > 1:
            # where neighbours part exactly here, a child begins
            cuts = [first, *(i for i in range(first + 1, last) if shared_lengths[i] == end), last]
            # reversed, because the stack gives the last one first: segments come in depth-first preorder
            stack.extend((a, b, end, parent) for a, b in reversed(list(pairwise(cuts))))
    return Trie(builder.ids(), builder.segments, spans, members)


def _longest(sequences: Sequence[NDArray[np.integer]]) -> tuple[list[Ints], list[tuple[int, int]]]:
    """Find (the sequences that begin no other one, sorted; for each sequence the index of such a one and its own
    length)."""
    # big-endian bytes sort as the ids do, and a prefix of ids is a prefix of bytes
    keys = [np.asarray(ids, ">u4").tobytes() for ids in sequences]
    rows: list[Ints] = []
    members = [(0, 0)] * len(keys)
    above = b""
    # in falling order a sequence comes right after one that it begins
    for i in sorted((i for i in range(len(keys)) if keys[i]), key=keys.__getitem__, reverse=True):
        if not (rows and above.startswith(keys[i])):
            rows.append(np.asarray(sequences[i], np.int64))
            above = keys[i]
        members[i] = (len(rows) - 1, len(sequences[i]))
    return rows[::-1], [(len(rows) - 1 - row, length) if length else (0, 0) for row, length in members]


def common_prefix(a: NDArray[np.integer], b: NDArray[np.integer]) -> int:
    """Count the tokens of the longest common prefix."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    return int(differ.argmax()) if differ.any() else n


class _Builder:
    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.segments: list[Segment] = []
        self.parts: list[Ints] = []
        self.total = 0

    def add(self, tokens: Ints, depth: int, parent: int) -> tuple[int, int]:
        """Append a run of tokens, cut where it is too long; returns its start and the index of its last segment."""
        start, size = self.total, self.longest or len(tokens)
        for offset in range(0, len(tokens), size):
            stop = min(offset + size, len(tokens))
            if parent >= 0:
                self.segments[parent].children.append(len(self.segments))
            self.segments.append(Segment(parent, start + offset, start + stop, depth + offset))
            parent = len(self.segments) - 1
        self.parts.append(tokens)
        self.total += len(tokens)
        return start, parent

    def ids(self) -> Ints:
        return np.concatenate(self.parts) if self.parts else np.zeros(0, np.int64)
