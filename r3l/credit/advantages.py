"""Group-relative advantages (paper, Eq. 5). Shapes: G members of one group."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
EPSILON = 1e-6


def group_statistics(rewards_G: ArrayLike, ddof: int = 1) -> tuple[float, float]:
    """Compute the mean and standard deviation of a group's rewards; the deviation of a single member is 0."""
    rewards = np.asarray(rewards_G, dtype=np.float64)
    return float(rewards.mean()), float(rewards.std(ddof=ddof)) if rewards.size > 1 else 0.0


def degenerate(rewards_G: ArrayLike) -> bool:
    """Tell whether all rewards are equal, or there is none, so that the group says nothing about which member was
    better."""
    rewards = np.asarray(rewards_G, dtype=np.float64)
    return bool((rewards == rewards[:1]).all())


def scaled_advantages(rewards_G: ArrayLike, scale: Literal["std", "none"], ddof: int = 1) -> Floats:
    """Compute A(tau), shape [G]: (R - mean) / (std + 1e-6) with `std`, R - mean with `none`; 0 in a degenerate
    group.

    Rounding would leave 1e-17 in a group of equal rewards, and the division would blow it up: hence the exact zero.
    """
    rewards = np.asarray(rewards_G, dtype=np.float64)
    if degenerate(rewards):
        return np.zeros_like(rewards)
    mean, std = group_statistics(rewards, ddof)
    return (rewards - mean) / (std + EPSILON if scale == "std" else 1.0)


def overlong_penalty(lengths_G: ArrayLike, limit: int, soft: int) -> Floats:
    """Compute what DAPO's soft overlong punishment takes off the reward, in [0, 1], shape [G].

    0 up to `limit - soft` tokens, then linear, 1 from `limit` on (DAPO, Eq. 13, with the sign turned).
    """
    lengths = np.asarray(lengths_G, dtype=np.float64)
    return np.clip((lengths - (limit - soft)) / soft, 0.0, 1.0)
