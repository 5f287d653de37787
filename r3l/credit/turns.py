"""Advantages of single turns. Shapes: G members of one group, K turns of one member."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from r3l.credit.advantages import Floats, scaled_advantages


def at_the_end(turns: int, reward: float) -> Floats:
    """Place the whole reward on the last of K turns, shape [K]."""
    rewards = np.zeros(turns)
    rewards[-1:] = reward
    return rewards


def paid_or_at_the_end(paid_K: Sequence[float | None], reward: float) -> Floats:
    """Take what each of K turns was paid, 0 where it was paid nothing, shape [K]; where none was, the reward at the
    end."""
    if all(paid is None for paid in paid_K):
        return at_the_end(len(paid_K), reward)
    return np.array([paid or 0.0 for paid in paid_K], dtype=np.float64)


def discounted_returns(rewards_K: ArrayLike, discount: float) -> Floats:
    """Sum discount^(j - k) r_j over j >= k for each turn k, shape [K]."""
    returns = np.array(rewards_K, dtype=np.float64)
    # from the end, each return is made of the one behind it
    for k in range(len(returns) - 2, -1, -1):
        returns[k] += discount * returns[k + 1]
    return returns


def anchored_advantages(
    returns_G: Sequence[Floats], anchors_G: Sequence[Sequence[Hashable]], scale: Literal["std", "none"], ddof: int = 1
) -> list[Floats]:
    """Compare each turn's return with those of all turns of the group with an equal anchor (GiGPO, Eq. 6 and 7).

    A turn whose anchor no other turn has gets 0, as it is compared with itself alone.
    """
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, anchor in enumerate(anchor for anchors in anchors_G for anchor in anchors):
        places[anchor].append(place)
    returns = np.concatenate([*returns_G, np.zeros(0)])
    advantages = np.zeros(len(returns))
    for together in places.values():
        advantages[together] = scaled_advantages(returns[together], scale, ddof)
    return split_by_member(advantages, [len(one) for one in returns_G])


def value_differences(values: Mapping[int, float], reward: float, turns: int) -> Floats:
    """Compute what each of K turns gained, shape [K]: the value of the next turn that has one, or the reward at the
    end, less the value of the last turn up to it that has one (VinePPO, Eq. 6, with steps of one or several turns).

    Args:
        values: turn to its value; turn 0 has one.
    """
    valued_turns = sorted(values)
    ends = [*valued_turns[1:], turns]
    gains = np.zeros(turns)
    for begin, end in zip(valued_turns, ends, strict=True):
        gains[begin:end] = (reward if end == turns else values[end]) - values[begin]
    return gains


def split_by_member(values: Floats, lengths_G: Sequence[int]) -> list[Floats]:
    """Split the values of all turns of a group into one array per member."""
    return np.split(values, np.cumsum(lengths_G)[:-1]) if lengths_G else []


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
