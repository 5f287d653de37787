"""Losses of one row, as pure functions of its log-probabilities: no config, no IO. A row's `objective` is a key of
LOSSES."""

from r3l.losses.clipped_ratio import clipped_ratio
from r3l.losses.cross_entropy import cross_entropy
from r3l.losses.kl_penalty import ESTIMATORS, kl_penalty
from r3l.losses.policy_gradient import policy_gradient
from r3l.losses.row_loss import Objective, RowLoss
from r3l.losses.sequence_ratio import sequence_ratio
from r3l.losses.shaped_ratio import shaped_ratio

LOSSES: dict[str, Objective] = {
    "policy_gradient": Objective(policy_gradient, straight=True),
    "cross_entropy": Objective(cross_entropy, straight=True, uses_advantage=False),
    "clipped_ratio": Objective(clipped_ratio, uses_ratio=True),
    "sequence_ratio": Objective(sequence_ratio, uses_ratio=True),
    "shaped_ratio": Objective(shaped_ratio),
}

__all__ = ["ESTIMATORS", "LOSSES", "Objective", "RowLoss", "kl_penalty"]
