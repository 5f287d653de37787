"""Pivotal credit: the turns before the pivot, which both members of a pair share, carry no weight (paper, Eq. 7)."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from r3l.credit.advantages import Floats

PivotMask = Literal["both", "retry_only", "off"]  # the settings and the SQL of the store are held against this rule


def distilled_mask_turn(pivot_turn: int | None, rule: PivotMask) -> int:
    """Find the first turn of a distilled trajectory that carries weight: its pivot, as used (0 after a restart)."""
    return 0 if rule == "off" else pivot_turn or 0


def base_mask_turn(pivot_turns: Iterable[int | None], rule: PivotMask) -> int:
    """Find the first turn of a base that carries weight: the smallest pivot among its retries, as only the turns before
    it are shared with every one of them. A base without a retry is not masked."""
    return min((pivot or 0 for pivot in pivot_turns), default=0) if rule == "both" else 0


def response_weights(response_lengths_K: Sequence[int], mask_turn: int) -> list[Floats]:
    """Compute mask_k^t of Eq. 7 for K turns: per turn an array of its reply's length, 0 where k < mask_turn, else 1."""
    return [np.full(length, float(turn >= mask_turn)) for turn, length in enumerate(response_lengths_K)]
