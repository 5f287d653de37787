"""Figures of the paper's analysis, per group or batch: gradient dominance (Theorem 4.3), variance ratio (Theorem 4.5).

Shapes: G members. The view `dominance` computes the same from the tables; a test holds them together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class Dominance:
    """Constructive against destructive signal. NaN where a figure has no members to be a mean of."""

    positive_share: float  # p: members with a positive advantage
    positive_mean: float  # mean A+
    negative_mean: float  # mean A-, negative
    positive_mass: float  # sum of A+
    negative_mass: float  # sum of |A-|
    ratio: float  # positive over negative mass
    alpha_min: float  # the least alpha with which the positive mass of these advantages outweighs the negative


def dominance(advantages_G: ArrayLike) -> Dominance:
    """Compute alpha_min of Theorem 4.3: (1 - p) |mean A-| / (p mean A+), which is negative over positive mass. Give it
    the advantages before amplification for alpha_min, those after it for the ratio that the update has. p is taken over
    the members with a non-zero advantage, so that those of degenerate groups weigh on neither side."""
    advantages = np.asarray(advantages_G, dtype=np.float64)
    positive, negative = advantages[advantages > 0], advantages[advantages < 0]
    up, down = float(positive.sum()), float(-negative.sum())
    return Dominance(
        positive_share=fraction(positive.size, positive.size + negative.size),
        positive_mean=fraction(up, positive.size),
        negative_mean=-fraction(down, negative.size),
        positive_mass=up,
        negative_mass=down,
        ratio=fraction(up, down),
        alpha_min=fraction(down, up),
    )


def variance_ratio(trained_tokens_G: ArrayLike, response_tokens_G: ArrayLike) -> float:
    """Compute (T - T_pivot) / T of Theorem 4.5, the bound on R3L's gradient variance over GRPO's, with T summed over
    the members.

    Args:
        trained_tokens_G: sampled tokens with weight.
        response_tokens_G: sampled tokens, masked ones too.
    """
    return fraction(float(np.sum(trained_tokens_G)), float(np.sum(response_tokens_G)))


def fraction(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")
