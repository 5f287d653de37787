"""RLTF-SD (2026, arXiv:2602.02482): the second attempt, made after feedback, is learned without it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from r3l.config.methods.taught import RLTFSDSettings
from r3l.credit.advantages import EPSILON, degenerate, signs
from r3l.methods.base import Method
from r3l.methods.guided.retried_once import retried_once
from r3l.records import Credit, Kind, SamplingPlan, Trajectory


class RLTFSD(Method[RLTFSDSettings]):
    """N/2 bases, feedback on each failure, a retry from the start behind it. A = R - mean R of the bases, for both: the
    baseline of a retry is what the policy gets without the feedback. -A log pi behind the prompt without the feedback,
    no ratio, no KL.
    """

    def plan(self, settings: RLTFSDSettings, group_size: int) -> SamplingPlan:
        return retried_once(settings, group_size, retry_from="start", retry_when="not_success")

    def credit(self, settings: RLTFSDSettings, members: Sequence[Trajectory]) -> list[Credit]:
        credits = super().credit(settings, members)
        rewards = np.array([one.reward - one.penalty for one in credits])
        firsts = [reward for reward, one in zip(rewards, credits, strict=True) if one.kind == Kind.BASE]
        if not firsts or degenerate(rewards):
            return credits  # all advantages are 0, but for rounding
        divisor = credits[0].group_std + EPSILON if settings.scale == "std" else 1.0
        advantages = (rewards - np.mean(firsts)) / divisor
        return [
            replace(one, scaled=float(advantage), advantage=float(advantage), rule=rule)
            for one, advantage, rule in zip(credits, advantages, signs(advantages), strict=True)
        ]
