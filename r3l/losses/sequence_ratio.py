"""GSPO: one ratio per sequence, s = exp(mean over trained tokens of (log pi_t - log pi_old,t)), clipped as a whole.

The token form of the GSPO paper: s_t = sg[s] pi_t / sg[pi_t], so its value is s and every token's gradient is s A.
"""

import torch
from torch import Tensor

from r3l.losses.row_loss import RowLoss


def sequence_ratio(
    logp_T: Tensor, old_T: Tensor, advantage: float, weights_T: Tensor, *, clip_low: float, clip_high: float
) -> RowLoss:
    trained_T = weights_T != 0
    if not bool(trained_T.any()):
        return RowLoss((weights_T * logp_T).sum())
    sequence = (logp_T - old_T).detach()[trained_T].mean().exp()
    ratio_T = sequence * (logp_T - logp_T.detach()).exp()
    plain_T = ratio_T * advantage
    bounded_T = ratio_T.clamp(1 - clip_low, 1 + clip_high) * advantage
    clipped = float(sequence.clamp(1 - clip_low, 1 + clip_high)) * advantage < float(sequence) * advantage
    return RowLoss(
        value=-(weights_T * torch.minimum(plain_T, bounded_T)).sum(),
        ratios=1,
        clipped=int(clipped),
        ratio_sum=float(sequence),
    )
