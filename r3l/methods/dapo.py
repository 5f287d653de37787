"""DAPO (Yu et al. 2025): clip-higher, token mean, dynamic sampling, overlong shaping."""

from collections.abc import Sequence
from dataclasses import replace

from r3l.config.methods.rivals import DAPOSettings
from r3l.credit.advantages import Floats, degenerate, overlong_penalty
from r3l.methods.base import RatioMethod
from r3l.records import Credit, SamplingPlan, Trajectory


class DAPO(RatioMethod[DAPOSettings]):
    """N trajectories, advantages as GRPO, ratio clipped at 0.2 below and 0.28 above, mean over all tokens, no KL. With
    dynamic sampling, groups of equal rewards leave the batch, and up to `resample_rounds` times new tasks are sampled
    in their place.
    """

    def plan(self, settings: DAPOSettings, group_size: int) -> SamplingPlan:
        rounds = settings.resample_rounds if settings.dynamic_sampling else 0
        return SamplingPlan(bases=group_size, resample_rounds=rounds)

    def credit(self, settings: DAPOSettings, members: Sequence[Trajectory]) -> list[Credit]:
        """Decide whether the group counts: with dynamic sampling, a group whose rewards are equal before shaping leaves
        the batch and its mean."""
        credits = super().credit(settings, members)
        if settings.dynamic_sampling and degenerate([member.reward for member in members]):
            return [replace(credit, advantage=0.0, rule="filtered") for credit in credits]
        return credits

    def penalties(self, settings: DAPOSettings, members: Sequence[Trajectory]) -> Floats:
        if settings.overlong_tokens == 0:
            return super().penalties(settings, members)
        return overlong_penalty(
            [member.response_tokens for member in members], settings.overlong_limit, settings.overlong_tokens
        )
