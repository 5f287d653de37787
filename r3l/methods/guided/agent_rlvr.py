"""Agent-RLVR (Da et al. 2025, arXiv:2506.11425): failures are guided by the environment, and guided successes are
preferred."""

from collections.abc import Sequence
from dataclasses import replace

from r3l.config.methods.rivals import AgentRLVRSettings
from r3l.methods.base import Method
from r3l.methods.guided.retried_once import retried_once
from r3l.records import Credit, Kind, SamplingPlan, Trajectory


class AgentRLVR(Method[AgentRLVRSettings]):
    """N/2 trajectories, the environment's guidance on each failure, a retry from the start, which is trained without
    it. A retry that solves the task is preferred to the attempt that did not: advantage 1 and -1, which is DPO's
    gradient where the policy is its own reference, with beta 2. Whatever is in no such pair is not trained on. No
    ratio, no KL.
    """

    def plan(self, settings: AgentRLVRSettings, group_size: int) -> SamplingPlan:
        return retried_once(settings, group_size, retry_from="start", retry_when="not_success")

    def credit(self, settings: AgentRLVRSettings, members: Sequence[Trajectory]) -> list[Credit]:
        success_ids = {one.trajectory_id for one in members if one.reward >= settings.success_threshold}
        base_of_success = {
            one.trajectory_id: str(one.base_id)
            for one in members
            if one.kind == Kind.DISTILLED and one.trajectory_id in success_ids and one.base_id not in success_ids
        }
        worth = dict.fromkeys(base_of_success, (1.0, "chosen")) | dict.fromkeys(
            base_of_success.values(), (-1.0, "refused")
        )
        pairs = [worth.get(one.trajectory_id, (0.0, "untrained")) for one in members]
        credits = super().credit(settings, members)
        return [
            replace(credit, advantage=advantage, rule=rule)
            for credit, (advantage, rule) in zip(credits, pairs, strict=True)
        ]
