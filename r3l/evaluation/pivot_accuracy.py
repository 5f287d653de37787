"""How well pivots are located against oracle pivots: the paper's table of pivot accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

AGREES_WITHIN, PARTIAL_WITHIN = 1, 3  # turns


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One reflection on a failed episode: the pivot it asked for, the oracle's, and whether its retry won (None: no retry)."""

    asked: int
    oracle: int
    retry_won: bool | None = None

    @property
    def distance(self) -> int:
        return abs(self.asked - self.oracle)


@dataclass(frozen=True, slots=True)
class PivotAccuracy:
    """Shares in [0, 1] over `reflections`; None where there is nothing to divide by.

    agreement: within one turn of the oracle. accurate, partial, misdiagnosed: at the oracle's turn, within three, farther; they
    add up to 1. won_given_right, won_given_wrong: retries that won, of those whose pivot agreed and of the others.
    """

    reflections: int
    agreement: float | None
    accurate: float | None
    partial: float | None
    misdiagnosed: float | None
    won_given_right: float | None
    won_given_wrong: float | None


def pivot_accuracy(diagnoses: Sequence[Diagnosis]) -> PivotAccuracy:
    agree = [found for found in diagnoses if found.distance <= AGREES_WITHIN]
    other = [found for found in diagnoses if found.distance > AGREES_WITHIN]
    exact = sum(found.distance == 0 for found in diagnoses)
    near = sum(0 < found.distance <= PARTIAL_WITHIN for found in diagnoses)
    return PivotAccuracy(
        len(diagnoses), share(len(agree), len(diagnoses)), share(exact, len(diagnoses)), share(near, len(diagnoses)),
        share(len(diagnoses) - exact - near, len(diagnoses)), won(agree), won(other))


def won(diagnoses: Sequence[Diagnosis]) -> float | None:
    retried = [found.retry_won for found in diagnoses if found.retry_won is not None]
    return share(sum(retried), len(retried))


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
