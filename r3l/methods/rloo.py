"""RLOO (Ahmadian et al. 2024): REINFORCE with the mean of the other members as its baseline."""

from r3l.config.methods.rivals import RLOOSettings
from r3l.credit.advantages import Floats
from r3l.methods.base import Method


class RLOO(Method[RLOOSettings]):
    """N trajectories, A = R - mean of the others' R = G / (G - 1) (R - mean), -A log pi. No ratio, no KL."""

    def scaled(self, settings: RLOOSettings, rewards_G: Floats) -> Floats:
        return super().scaled(settings, rewards_G) * rewards_G.size / max(rewards_G.size - 1, 1)
