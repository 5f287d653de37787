"""HINT (Wang et al. 2025, arXiv:2510.09388): a group without a success is sampled again with a hint, which is then
removed."""

from collections.abc import Sequence

from r3l.config.methods.rivals import HINTSettings
from r3l.config.section import from_settings
from r3l.methods.base import LeftOut, RatioMethod
from r3l.records import Kind, SamplingPlan, Trajectory


class HINT(RatioMethod[HINTSettings]):
    """N trajectories. Where none of them solves the task, N more with a hint of it stand in their place, and are
    trained without the hint. Credit and loss as GRPO, no KL.
    """

    def plan(self, settings: HINTSettings, group_size: int) -> SamplingPlan:
        return from_settings(
            SamplingPlan,
            settings,
            bases=group_size,
            reflection="report",
            retries_per_base=1,
            retry_from="start",
            retry_when="group_failed",
        )

    def select(self, settings: HINTSettings, members: Sequence[Trajectory]) -> tuple[list[Trajectory], list[LeftOut]]:
        with_hint = [member for member in members if member.kind == Kind.DISTILLED]
        if not with_hint:
            return list(members), []
        reason = "no attempt of the group solved the task: those with a hint stand in its place"
        return with_hint, [LeftOut(one.trajectory_id, reason) for one in members if one.kind != Kind.DISTILLED]
