"""PPO's clipped surrogate: l_t = -min(r_t A, clip(r_t, 1 - low, 1 + high) A) with r_t = pi_t / pi_old,t (GRPO,
DAPO)."""

import torch
from torch import Tensor

from r3l.losses.row_loss import RowLoss


def clipped_ratio(
    logp_T: Tensor, old_T: Tensor, advantage: float, weights_T: Tensor, *, clip_low: float, clip_high: float
) -> RowLoss:
    ratio_T = (logp_T - old_T).exp()
    plain_T = ratio_T * advantage
    bounded_T = ratio_T.clamp(1 - clip_low, 1 + clip_high) * advantage
    trained_T = weights_T != 0
    return RowLoss(
        value=-(weights_T * torch.minimum(plain_T, bounded_T)).sum(),
        ratios=int(trained_T.sum()),
        clipped=int(((bounded_T < plain_T) & trained_T).sum()),
        ratio_sum=float(ratio_T.detach()[trained_T].sum()),
    )
