"""HGPO (He et al. 2026, arXiv:2602.22817): turns are compared with those that have the same recent past."""

from collections.abc import Hashable, Sequence

import numpy as np

from r3l.config.methods.rivals import HGPOSettings
from r3l.credit.advantages import Floats
from r3l.credit.turns import anchored_advantages
from r3l.methods.base import PlayedGroup, RatioMethod
from r3l.methods.turns.gigpo import anchors
from r3l.records import Turn


class HGPO(RatioMethod[HGPOSettings]):
    """N trajectories. A turn's return is compared k times, for k = 1 .. `history` + 1, with those of the group's turns
    whose last k observations are the same; its advantage is the mean of what differs from 0, with weights
    (k + 1)^`weight_power`: the longer the common past, the more a comparison counts. Where the
    environment pays turns, a return is made of what they were paid. Loss: GRPO's.
    """

    credits_turns = True

    def turn_advantages(self, settings: HGPOSettings, group: PlayedGroup) -> list[Floats]:
        returns = group.returns(settings.discount)
        sums, weights = ([np.zeros(len(one)) for one in returns] for _ in range(2))
        for k in range(1, settings.history + 2):
            pasts = [recent(g, turns, k) for g, turns in enumerate(group.turns)]
            compared = anchored_advantages(returns, pasts, settings.scale, ddof=0)
            for one, total, weight in zip(compared, sums, weights, strict=True):
                total += (k + 1) ** settings.weight_power * one
                weight += (k + 1) ** settings.weight_power * (one != 0)
        return [total / np.where(weight == 0, 1, weight) for total, weight in zip(sums, weights, strict=True)]


def recent(member: int, turns: Sequence[Turn], k: int) -> list[Hashable]:
    """Name the last k states up to each turn. A turn that has fewer is compared with none."""
    states = anchors(turns)
    return [tuple(states[turn - k + 1 : turn + 1]) if turn + 1 >= k else (member, turn) for turn in range(len(states))]
