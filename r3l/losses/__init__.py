"""Losses of one row, as pure functions of its log-probabilities: no config, no IO. A row's `objective` is a key of
LOSSES."""

from r3l.losses.balance import Bounds, candidates, choose_bounds, masses
from r3l.losses.objectives import ESTIMATORS, LOSSES, Objective, RowLoss, kl_penalty
from r3l.losses.sampler_ratio import off_policy, sampler_weights
from r3l.losses.teacher import taught_advantage

__all__ = [
    "ESTIMATORS",
    "LOSSES",
    "Bounds",
    "Objective",
    "RowLoss",
    "candidates",
    "choose_bounds",
    "kl_penalty",
    "masses",
    "off_policy",
    "sampler_weights",
    "taught_advantage",
]
