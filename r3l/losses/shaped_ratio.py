"""Critique-GRPO's shaping of refinements: l_t = -A f(pi_t), f(p) = p / (p + gamma): unlikely tokens gain the most."""

from torch import Tensor

from r3l.losses.row_loss import RowLoss


def shaped_ratio(logp_T: Tensor, old_T: Tensor, advantage: float, weights_T: Tensor, *, gamma: float) -> RowLoss:
    p_T = logp_T.exp()
    return RowLoss(-(weights_T * advantage * p_T / (p_T + gamma)).sum())
