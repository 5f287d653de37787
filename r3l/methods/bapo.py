"""BAPO (Xi et al. 2025, arXiv:2510.18927): clip bounds that balance good and bad tokens."""

from dataclasses import replace

from r3l.config.methods.rivals import BAPOSettings
from r3l.methods.base import Objective, RatioMethod

SEARCH = ("clip_low", "clip_low_least", "clip_low_step", "clip_high", "clip_high_most", "clip_high_step")


class BAPO(RatioMethod[BAPOSettings]):
    """N trajectories, advantages as GRPO, mean over all tokens, no KL. For each update the lower bound of the ratio
    rises from 0.6 to at most 0.8, then the upper one from 1.2 to at most 2, until positive rows hold half of the
    batch's mass.
    """

    loss = "balanced_ratio"

    def clipped(self, settings: BAPOSettings) -> Objective:
        search = {name: getattr(settings, name) for name in (*SEARCH, "positive_share")}
        return replace(super().clipped(settings), settings=search)
