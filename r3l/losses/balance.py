"""BAPO's clip bounds (Xi et al. 2025): moved until the rows of positive advantage hold a given share of the loss's
mass.

Shapes: T = trained tokens of one row, C = candidates for the bounds. The bounds are chosen once for a whole batch: the
masses of all its rows are summed before.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from r3l.losses.objectives import Advantage

DIGITS = 9  # steps of 0.05 do not add up to the last bit


class Bounds(NamedTuple):
    """The ratio is clipped below 1 - clip_low and above 1 + clip_high."""

    clip_low: float
    clip_high: float


def candidates(
    *,
    clip_low: float,
    clip_high: float,
    clip_low_least: float,
    clip_high_most: float,
    clip_low_step: float,
    clip_high_step: float,
    positive_share: float,
) -> list[Bounds]:
    """List the bounds in the order in which they are tried, C of them: the lower one moves towards 1 until it stands at
    `clip_low_least`, then the upper one away from 1 until it stands at `clip_high_most`."""
    bounds = [Bounds(clip_low, clip_high)]
    while (low := bounds[-1].clip_low) > clip_low_least:
        bounds.append(Bounds(max(round(low - clip_low_step, DIGITS), clip_low_least), clip_high))
    while (high := bounds[-1].clip_high) < clip_high_most:
        bounds.append(Bounds(bounds[-1].clip_low, min(round(high + clip_high_step, DIGITS), clip_high_most)))
    return bounds


def masses(ratio_T: Tensor, advantage: Advantage, weights_T: Tensor, tried: Sequence[Bounds]) -> Tensor:
    """Sum the (positive, negative) mass of a row under each candidate, shape [C, 2]: weights x clipped ratio x
    |advantage|."""
    credit_T = weights_T * advantage
    good_T, bad_T = credit_T.clamp(min=0), -credit_T.clamp(max=0)
    return torch.stack(
        [
            torch.stack(
                [
                    (good_T * ratio_T.clamp(max=1 + bounds.clip_high)).sum(),
                    (bad_T * ratio_T.clamp(min=1 - bounds.clip_low)).sum(),
                ]
            )
            for bounds in tried
        ]
    )


def choose_bounds(tried: Sequence[Bounds], masses_C2: Tensor, positive_share: float) -> Bounds:
    """Choose the first candidate under which the positive mass is `positive_share` of both, else the last one."""
    for bounds, (positive, negative) in zip(tried, masses_C2.tolist(), strict=True):
        if positive >= positive_share * (positive + negative):
            return bounds
    return tried[-1]
