"""Critique-GRPO (Zhang et al. 2025): the best refinement of a group joins it, with a shaped loss."""

from collections.abc import Sequence
from dataclasses import replace

from r3l.config.methods.rivals import CritiqueGRPOSettings
from r3l.methods.base import LeftOut, Objective, RatioMethod
from r3l.records import Kind, SamplingPlan, Trajectory


class CritiqueGRPO(RatioMethod[CritiqueGRPOSettings]):
    """N trajectories, a free-text critique on each, a whole refinement after each critique. The first refinement with
    R >= success_threshold, else the one with the highest reward, joins its group: N + 1 members, credit as GRPO.
    Loss: GRPO's for the N, -A f(pi) with f(p) = p / (p + gamma) for the refinement.
    """

    def plan(self, settings: CritiqueGRPOSettings, group_size: int) -> SamplingPlan:
        return SamplingPlan(
            bases=group_size, reflection="critique", retries_per_base=1, retry_from="start", retry_when="always"
        )

    def select(
        self, settings: CritiqueGRPOSettings, members: Sequence[Trajectory]
    ) -> tuple[list[Trajectory], list[LeftOut]]:
        bases = [member for member in members if member.kind == Kind.BASE]
        refinements = [member for member in members if member.kind == Kind.DISTILLED]
        if not refinements:
            return bases, []
        best = max(refinements, key=lambda one: min(one.reward, settings.success_threshold))
        reason = f"a refinement that is not the group's best ({best.trajectory_id}, reward {best.reward:g})"
        return [*bases, best], [LeftOut(one.trajectory_id, reason) for one in refinements if one is not best]

    def objective(self, settings: CritiqueGRPOSettings, member: Trajectory) -> Objective:
        of_base = super().objective(settings, member)
        if member.kind == Kind.BASE:
            return of_base
        return replace(of_base, name="shaped_ratio", settings={"gamma": settings.gamma}, role="refinement")
