"""GRPO (Shao et al. 2024; paper, Eq. 5-7 of its preliminaries)."""

from r3l.config.methods.rivals import GRPOSettings
from r3l.methods.base import RatioMethod


class GRPO(RatioMethod[GRPOSettings]):
    """N trajectories, (R - mean) / (std + 1e-6), token ratios clipped at 0.2, k3 KL to the reference at 0.01."""
