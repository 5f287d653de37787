"""REINFORCE on the trained tokens: l_t = -A log pi_t (R3L; RAFT with A = 1; OPMD with 1 / (1 + tau) in the
coefficient)."""

from torch import Tensor

from r3l.losses.row_loss import RowLoss


def policy_gradient(logp_T: Tensor, old_T: Tensor, advantage: float, weights_T: Tensor) -> RowLoss:
    return RowLoss(-(weights_T * advantage * logp_T).sum())
