"""GSPO (Zheng et al. 2025): one importance ratio per sequence."""

from r3l.config.methods.rivals import GSPOSettings
from r3l.methods.base import RatioMethod


class GSPO(RatioMethod[GSPOSettings]):
    """N trajectories, advantages as GRPO; the ratio is the geometric mean over a trajectory's tokens, clipped at
    0.0003 and 0.0004; k3 KL to the reference at 0.01.
    """

    loss = "sequence_ratio"
