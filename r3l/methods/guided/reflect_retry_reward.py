"""Reflect, Retry, Reward (Bensal et al. 2025, arXiv:2505.24726): the reflection's tokens are rewarded, nothing else."""

from collections.abc import Sequence

import numpy as np

from r3l.config.methods.rivals import ReflectRetryRewardSettings
from r3l.credit.advantages import Floats, scaled_advantages
from r3l.methods.base import LeftOut, Lesson, Objective, RatioMethod
from r3l.methods.guided.retried_once import retried_once
from r3l.records import Kind, Reflection, SamplingPlan, Status, Trajectory


class ReflectRetryReward(RatioMethod[ReflectRetryRewardSettings]):
    """N/2 bases, a reflection on each failure, a retry from the start behind it. The reflections of a task are one
    group of GRPO: the reward of a reflection is its retry's. Attempts and retries are not trained on.
    """

    def plan(self, settings: ReflectRetryRewardSettings, group_size: int) -> SamplingPlan:
        return retried_once(settings, group_size, retry_from="start", retry_when="not_success")

    def advantages(
        self, settings: ReflectRetryRewardSettings, rewards_G: Floats, scaled_G: Floats
    ) -> tuple[Floats, list[str]]:
        return np.zeros(rewards_G.size), ["untrained"] * rewards_G.size

    def lessons(
        self, settings: ReflectRetryRewardSettings, attempts: Sequence[Trajectory], reflections: Sequence[Reflection]
    ) -> tuple[list[Lesson], list[LeftOut]]:
        reward_of = {
            attempt.reflection_id: attempt.reward
            for attempt in attempts
            if attempt.kind == Kind.RETRY and Status(attempt.status).trainable
        }
        with_retry = [one for one in reflections if one.reflection_id in reward_of]
        advantages = scaled_advantages([reward_of[one.reflection_id] for one in with_retry], settings.scale)
        left_out = [
            LeftOut(one.reflection_id, one.decision if one.decision != "retry" else "its retry did not end by itself")
            for one in reflections
            if one.reflection_id not in reward_of
        ]
        lessons: list[Lesson] = []
        for reflection, advantage in zip(with_retry, advantages, strict=True):
            if advantage == 0:
                left_out.append(LeftOut(reflection.reflection_id, "all retries of its task have one reward"))
            else:
                lessons.append(Lesson(reflection, advantage=float(advantage)))
        return lessons, left_out

    def lesson_objective(self, settings: ReflectRetryRewardSettings) -> Objective:
        return self.clipped(settings)
