"""From a training row back to the turns it was made of: which weight each sampled token of each turn was trained with.

token_ids = C0 + A0 + C1 + A1 + ...       (C = context, A = sampled reply; a row of K turns)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from r3l.audit.reader import Row


@dataclass(frozen=True, slots=True)
class Piece:
    """One turn of a sequence: its number, its context and its reply."""

    turn: int
    context_ids: list[int]
    response_ids: list[int]


@dataclass(frozen=True, slots=True)
class Trained:
    """The training row of a source: its columns, and per turn the weights of the reply's tokens and their advantage.

    `aligned` is False where the row's tokens are not those of the pieces, or were pruned, so that no weight can be
    shown in its place.
    """

    row: Row
    aligned: bool
    weights: dict[int, list[float]] = field(default_factory=dict)
    advantages: dict[int, list[float]] = field(default_factory=dict)  # empty: the row has one for all turns

    @property
    def pruned(self) -> bool:
        return not self.row["token_ids"]

    def advantage(self, turn: int) -> float:
        """Find the advantage of a turn: its own, or else the row's."""
        own = self.advantages.get(turn)
        return own[0] if own else float(self.row["advantage"])

    def effect(self, turn: int) -> float:
        """Compute weight x advantage of the turn's most heavily weighted token; 0 if none of its tokens is trained."""
        return max(self.weights.get(turn, [0.0]), default=0.0) * self.advantage(turn)


def place_weights(row: Row, *readings: Sequence[Piece]) -> Trained:
    """Lay the row over the first of the readings whose tokens it has (a retry may stand behind its parent's prefix, or
    alone)."""
    for pieces in readings if row["token_ids"] else ():
        ids = [token for piece in pieces for token in (*piece.context_ids, *piece.response_ids)]
        if ids == row["token_ids"]:
            return Trained(row, True, cut(row["weights"], pieces), cut(row["advantages"] or [], pieces))
    return Trained(row, False)


def cut(values: Sequence[float], pieces: Sequence[Piece]) -> dict[int, list[float]]:
    """Cut what a row says of each token into the replies' shares, by turn."""
    slices, place = {}, 0
    for piece in pieces:
        place += len(piece.context_ids)
        slices[piece.turn] = list(values[place : place + len(piece.response_ids)])
        place += len(piece.response_ids)
    return slices


@dataclass(frozen=True, slots=True)
class ShadeScale:
    """Five shades of |weight x advantage|, each about three times the one below it.

    The strongest shade ends at `top`, a round number of the ladder 1, 3, 10, 30, ..., so that the shades of two
    attempts of an iteration, and mostly those of two iterations, mean the same.
    """

    top: float

    @classmethod
    def over(cls, largest: float) -> ShadeScale:
        """Make the scale that takes in effects up to `largest`."""
        if not largest:
            return cls(0.0)
        decade = 10.0 ** math.floor(math.log10(largest))
        return cls(next(decade * step for step in (1, 3, 10, 30) if decade * step >= largest * (1 - 1e-6)))

    @property
    def edges(self) -> list[float]:
        """List the largest effect of each shade, the weakest shade first."""
        leading = self.top / 10.0 ** math.floor(math.log10(self.top)) if self.top else 0.0
        below = (100, 100 / 3, 10, 10 / 3, 1) if round(leading) == 1 else (100, 30, 10, 3, 1)
        return [self.top / step for step in below]

    def level(self, effect: float) -> int:
        """Choose shade 1 to 5; 0 for no effect, and never 0 for some."""
        if not effect or not self.top:
            return 0
        return 1 + sum(abs(effect) > edge * (1 + 1e-6) for edge in self.edges[:-1])
