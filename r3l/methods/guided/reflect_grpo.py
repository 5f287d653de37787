"""Reflect-GRPO (Bensal et al. 2025, on a group of GRPO): half the budget is guided retries."""

from collections.abc import Sequence

import numpy as np

from r3l.config.methods.rivals import ReflectGRPOSettings
from r3l.methods.base import LeftOut, Lesson, Objective, RatioMethod
from r3l.methods.guided.retried_once import retried_once
from r3l.records import Kind, Reflection, SamplingPlan, Status, Trajectory


class ReflectGRPO(RatioMethod[ReflectGRPOSettings]):
    """N/2 bases, a reflection on each and a retry after each valid one, guidance removed; one group, credit and loss as
    GRPO. No pivot mask, no amplification, no SFT. The paper's section "Comparison with Related Methods": every base is
    retried, and from the start. Its table of structures (`train_reflections`): N bases, and the reflection is a part of
    the retried trajectory, trained with its advantage.
    """

    def plan(self, settings: ReflectGRPOSettings, group_size: int) -> SamplingPlan:
        return retried_once(settings, 2 * group_size if settings.train_reflections else group_size)

    def lessons(
        self, settings: ReflectGRPOSettings, attempts: Sequence[Trajectory], reflections: Sequence[Reflection]
    ) -> tuple[list[Lesson], list[LeftOut]]:
        if not settings.train_reflections:
            return super().lessons(settings, attempts, reflections)
        members = [one for one in attempts if one.kind in {Kind.BASE, Kind.DISTILLED} and Status(one.status).trainable]
        rewards = np.array([one.reward for one in members])
        advantages = self.advantages(settings, rewards, self.scaled(settings, rewards))[0] if members else rewards
        worth = {one.reflection_id: float(advantage) for one, advantage in zip(members, advantages, strict=True)}
        lessons = [
            Lesson(one, advantage=worth[one.reflection_id]) for one in reflections if worth.get(one.reflection_id)
        ]
        left_out = [
            LeftOut(one.reflection_id, "its retry has no advantage" if one.decision == "retry" else one.decision)
            for one in reflections
            if not worth.get(one.reflection_id)
        ]
        return lessons, left_out

    def lesson_objective(self, settings: ReflectGRPOSettings) -> Objective:
        return self.clipped(settings)
