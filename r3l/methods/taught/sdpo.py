"""SDPO (Hübotter et al. 2026, arXiv:2601.20802): the policy that knows a success, or feedback, teaches itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from r3l.config.methods.taught import SDPOSettings
from r3l.credit.advantages import Floats
from r3l.methods.base import Method, Objective, Teacher
from r3l.methods.taught.contexts import taught_plan, teacher_of
from r3l.records import Episode, SamplingPlan, Trajectory


class SDPO(Method[SDPOSettings]):
    """N trajectories. The loss of a token is sg(log pi - log pi_T) log pi, times min(pi / pi_old, `most_ratio`): its
    advantage is the gap to the teacher, whatever the rewards are. A trajectory without a teacher has no row. No KL.
    """

    taught_only = True

    def plan(self, settings: SDPOSettings, group_size: int) -> SamplingPlan:
        return taught_plan(settings, group_size)

    def advantages(self, settings: SDPOSettings, rewards_G: Floats, scaled_G: Floats) -> tuple[Floats, list[str]]:
        return np.ones(rewards_G.size), ["taught"] * rewards_G.size

    def objective(self, settings: SDPOSettings, member: Trajectory) -> Objective:
        clip = {"clip_low": 1.0, "clip_high": settings.most_ratio - 1}  # no lower bound: a ratio is above 0
        return Objective("cispo", clip, settings.loss_factor)

    def teacher(self, settings: SDPOSettings, member: Episode, group: Sequence[Episode]) -> Teacher | None:
        return teacher_of(settings, member, group)

    def taught(self, settings: SDPOSettings, iteration: int) -> dict[str, Any]:
        return {"rule": "gap", "mix": 1.0, "low": 0.0, "high": 0.0}
