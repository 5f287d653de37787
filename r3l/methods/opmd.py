"""OPMD (Yao et al. 2025): group-relative REINFORCE, the loss divided by 1 + tau."""

from r3l.config.methods.rivals import OPMDSettings
from r3l.methods.base import Method, Objective
from r3l.records import Trajectory


class OPMD(Method[OPMDSettings]):
    """N trajectories, R - mean, -A log pi / (1 + tau). No ratio, no KL."""

    def objective(self, settings: OPMDSettings, member: Trajectory) -> Objective:
        return Objective("policy_gradient", coefficient=settings.loss_factor / (1 + settings.tau))
