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


def signs(advantages_G: ArrayLike) -> list[str]:
    """Name the rule of each member where nothing is amplified: positive, negative or zero."""
    names = {1: "positive", -1: "negative", 0: "zero"}
    return [names[int(sign)] for sign in np.sign(np.asarray(advantages_G))]


def amplify(
    rewards_G: ArrayLike,
    scaled_G: ArrayLike,
    *,
    alpha: float,
    top_rule: Literal["group_max", "success", "none"],
    top_value: float,
    success_threshold: float,
) -> tuple[Floats, list[str]]:
    """Compute A-hat(tau), shape [G], and the rule that gave it: `top_value` for the top, alpha * A for other positive
    A, else A.

    `group_max`: the top is R = R_max of a group whose rewards differ, so that a group of failures gets nothing.
    `success`: the top is R >= success_threshold, in a group of equal rewards too.
    """
    rewards = np.asarray(rewards_G, dtype=np.float64)
    scaled = np.asarray(scaled_G, dtype=np.float64)
    top = np.zeros(rewards.shape, dtype=bool)
    if top_rule == "success":
        top = rewards >= success_threshold
    elif top_rule == "group_max" and not degenerate(rewards):
        top = rewards == rewards.max()
    advantages = np.where(scaled > 0, alpha * scaled, scaled)
    # after the amplification: the top has its own value, whatever its scaled advantage was
    advantages = np.where(top, top_value, advantages)
    return advantages, ["top" if is_top else sign for is_top, sign in zip(top, signs(scaled), strict=True)]
