"""Process supervision (GRPO's, DeepSeekMath, Shao et al. 2024, arXiv:2402.03300, section 4.1.3), by the environment."""

from collections.abc import Sequence

import numpy as np

from r3l.config.methods.rivals import ProcessSupervisionSettings
from r3l.credit.advantages import Floats, scaled_advantages
from r3l.credit.turns import discounted_returns, paid_or_at_the_end, split_by_member
from r3l.methods.base import PlayedGroup, RatioMethod
from r3l.records import Turn


class ProcessSupervision(RatioMethod[ProcessSupervisionSettings]):
    """N trajectories. A turn's reward is what the environment pays for it; else the share of sub-goals that it adds, or
    below 0 that it loses, as the environment knows it: an upper bound for what a learned judge of turns could give.
    Rewards are normalised over all turns of the group; a turn's advantage is the sum of those from it on. Loss: GRPO's.
    """

    credits_turns = True

    def turn_advantages(self, settings: ProcessSupervisionSettings, group: PlayedGroup) -> list[Floats]:
        rewards = [gains(turns, one.reward - one.penalty) for one, turns in zip(group.credit, group.turns, strict=True)]
        lengths = [len(own) for own in rewards]
        scaled = (
            split_by_member(scaled_advantages(np.concatenate(rewards), settings.scale), lengths)
            if sum(lengths)
            else rewards
        )
        return [discounted_returns(own, settings.discount) for own in scaled]


def gains(turns: Sequence[Turn], reward: float) -> Floats:
    """Compute what each turn was paid or, where the environment pays none, added to the share of sub-goals reached,
    shape [K]; where it tells of none either, its only sub-goal is the reward at the end."""
    paid = [turn.reward for turn in turns]
    if all(turn.progress is None for turn in turns) or any(one is not None for one in paid):
        return paid_or_at_the_end(paid, reward)
    shares = [0.0]
    for turn in turns:
        shares.append(shares[-1] if turn.progress is None else turn.progress)
    return np.diff(shares)
