"""VinePPO (Kazemnejad et al. 2024, arXiv:2410.01679): what a turn is worth, by playing on from it several times."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from r3l.config.methods.rivals import VinePPOSettings
from r3l.credit.advantages import EPSILON, Floats
from r3l.credit.turns import value_differences
from r3l.methods.base import PlayedGroup, RatioMethod
from r3l.records import SamplingPlan


class VinePPO(RatioMethod[VinePPOSettings]):
    """N trajectories, and `continuations` from each of up to `turns_sampled` turns of every one, by exact rollback. The
    value of such a turn is their mean reward, that of the first turn the group's, whose members all begin there. An
    advantage is the value that the turns up to the next such one gained (Eq. 6). Loss: GRPO's.
    """

    credits_turns = True

    def plan(self, settings: VinePPOSettings, group_size: int) -> SamplingPlan:
        return SamplingPlan(
            bases=group_size, continued_turns=settings.turns_sampled, continuations=settings.continuations
        )

    def turn_advantages(self, settings: VinePPOSettings, group: PlayedGroup) -> list[Floats]:
        rewards_from: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one in group.continuations:
            rewards_from[str(one.base_id)][int(one.pivot_turn or 0)].append(one.reward)
        first = group.credit[0]
        divisor = first.group_std + EPSILON if settings.scale == "std" else 1.0
        return [
            value_differences(
                values(rewards_from[one.trajectory_id], first.group_mean), one.reward - one.penalty, len(turns)
            )
            / divisor
            for one, turns in zip(group.credit, group.turns, strict=True)
        ]


def values(rewards: Mapping[int, list[float]], first: float) -> dict[int, float]:
    """Map a turn to its value: the mean reward of the continuations from it; of the first turn, `first`."""
    return {0: first, **{turn: float(np.mean(turn_rewards)) for turn, turn_rewards in rewards.items()}}
