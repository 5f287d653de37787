"""Reflect-GRPO (Bensal et al. 2025, on a group of GRPO): half the budget is guided retries."""

from r3l.config.methods.rivals import ReflectGRPOSettings
from r3l.methods.base import RatioMethod
from r3l.methods.guided.retried_once import retried_once
from r3l.records import SamplingPlan


class ReflectGRPO(RatioMethod[ReflectGRPOSettings]):
    """N/2 bases, a reflection on each and a retry after each valid one, guidance removed; one group, credit and loss as
    GRPO. No pivot mask, no amplification, no SFT. The paper's section "Comparison with Related Methods": every base is
    retried, and from the start.
    """

    def plan(self, settings: ReflectGRPOSettings, group_size: int) -> SamplingPlan:
        return retried_once(settings, group_size)
