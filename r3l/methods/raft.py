"""RAFT (Dong et al. 2023): fine-tune on the best of what was sampled."""

import numpy as np

from r3l.config.methods.rivals import RAFTSettings
from r3l.credit.advantages import Floats
from r3l.methods.base import Method, Objective
from r3l.records import Trajectory


class RAFT(Method[RAFTSettings]):
    """N trajectories; those with R >= success_threshold are kept and learned by their mean token NLL. No ratio, no
    KL."""

    def advantages(self, settings: RAFTSettings, rewards_G: Floats, scaled_G: Floats) -> tuple[Floats, list[str]]:
        is_kept = rewards_G >= settings.success_threshold
        return is_kept.astype(np.float64), ["kept" if one else "rejected" for one in is_kept]

    def objective(self, settings: RAFTSettings, member: Trajectory) -> Objective:
        return Objective("cross_entropy", coefficient=settings.loss_factor)
