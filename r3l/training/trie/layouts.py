"""The layouts of the rows of a micro-batch. All give the same gradient; the trie computes the least.

Shapes: T = trained tokens of a row (each row its own).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from r3l.training.rows import UpdateRow
from r3l.training.trie.decoder import Decoder
from r3l.training.trie.depth_first import DepthFirst
from r3l.training.trie.tree import Trie, build_trie

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the memory of a pass. Halved when it runs out."""

    micro_batch_tokens: int
    logits_chunk: int
    segment_tokens: int = 0  # longest segment of the trie, 0: as they come
    recompute: bool = False

    def halved(self) -> Limits:
        segment = max(256, (self.segment_tokens or 8192) // 2)
        return Limits(max(64, self.micro_batch_tokens // 2), max(16, self.logits_chunk // 2), segment, recompute=True)


@dataclass(frozen=True, slots=True)
class Pass:
    """The results of one pass: log-probabilities of each row's trained tokens, and the entropies (nats) at those
    positions."""

    logps: list[Floats]
    entropies: list[Floats]
    tokens_computed: int


class Layout(Protocol):
    def score(self, decoder: Decoder, rows: Sequence[UpdateRow], limits: Limits) -> Pass: ...

    def backward(
        self, decoder: Decoder, rows: Sequence[UpdateRow], gradients: Sequence[Floats], limits: Limits
    ) -> Pass:
        """Add the gradient of sum over rows and tokens of gradients[row][t] logp[row][t] to the parameters'
        gradients."""
        ...


class TrieLayout:
    """Shared prefixes once, depth-first: a token's dL/dlogp is the sum over the rows that share it."""

    def score(self, decoder: Decoder, rows: Sequence[UpdateRow], limits: Limits) -> Pass:
        trie, places, is_trained = lay_out(rows, limits)
        scores = DepthFirst(decoder, trie, is_trained, limits.logits_chunk).score()
        return Pass(
            [scores.logp[place] for place in places], [scores.entropy[place] for place in places], trie.tokens_computed
        )

    def backward(
        self, decoder: Decoder, rows: Sequence[UpdateRow], gradients: Sequence[Floats], limits: Limits
    ) -> Pass:
        trie, places, is_trained = lay_out(rows, limits)
        trie_gradient = np.zeros(len(trie.ids))
        for place, gradient in zip(places, gradients, strict=True):
            trie_gradient[place] += gradient  # the positions of one row are distinct
        scores = DepthFirst(decoder, trie, is_trained, limits.logits_chunk).backward(trie_gradient, limits.recompute)
        return Pass(
            [scores.logp[place] for place in places], [scores.entropy[place] for place in places], trie.tokens_computed
        )


def lay_out(rows: Sequence[UpdateRow], limits: Limits) -> tuple[Trie, list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Build (trie, place in it of each row's trained tokens, whether a token of the trie is trained by any row)."""
    trie = build_trie([row.token_ids for row in rows], limits.segment_tokens)
    places = [trie.path(i)[row.positions] for i, row in enumerate(rows)]
    is_trained = np.zeros(len(trie.ids), bool)
    for place in places:
        is_trained[place] = True
    return trie, places, is_trained
