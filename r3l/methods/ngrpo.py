"""NGRPO (Nan et al. 2025, arXiv:2509.18851): a virtual member of the highest reward stands in each group."""

import numpy as np

from r3l.config.methods.rivals import NGRPOSettings
from r3l.credit.advantages import Floats, scaled_advantages
from r3l.methods.base import RatioMethod


class NGRPO(RatioMethod[NGRPOSettings]):
    """N trajectories, advantages over the N rewards and `highest_reward`, so that a group of failures is pushed away
    from what it did. Ratio clipped at 0.16 below, which bounds negative members, and 0.24 above, which bounds positive
    ones.
    """

    def scaled(self, settings: NGRPOSettings, rewards_G: Floats) -> Floats:
        return scaled_advantages(np.append(rewards_G, settings.highest_reward), settings.scale)[:-1]
