"""Supervised rows: l_t = -log pi_t, whatever the advantage (the meta-task term, and RAFT)."""

from torch import Tensor

from r3l.losses.row_loss import RowLoss


def cross_entropy(logp_T: Tensor, old_T: Tensor, advantage: float, weights_T: Tensor) -> RowLoss:
    return RowLoss(-(weights_T * logp_T).sum())
