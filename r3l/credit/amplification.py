"""Positive amplification (paper, Eq. 8). Shapes: G members of one group."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from r3l.credit.advantages import Floats, degenerate


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
