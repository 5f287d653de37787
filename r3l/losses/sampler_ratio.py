"""The ratio between the policy that is trained and the engine that sampled with it: the same weights, other arithmetic.
rho_t = pi_trainer(t) / pi_engine(t), a constant that a token's loss is weighted with. And the mask of rows that the
policy would not write any more.
"""

from typing import Literal

import torch
from torch import Tensor

from r3l.losses.objectives import bounded_exp

Rule = Literal["truncate", "mask", "sequence_mask"]


def sampler_weights(
    trainer_T: Tensor, engine_T: Tensor, weights_T: Tensor, *, rule: Rule, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Compute (the weight of each token, whether the rule changed it), shape [T]. A token whose log-probability the
    engine did not tell (NaN) has weight 1: a retry's, which was sampled behind guidance.

    truncate: min(rho, high) (TIS). mask: rho within [low, high], else 0 (IcePop). sequence_mask: the product of the
    row's rho weighs all its tokens, 0 where it is above high (TRL).
    """
    known_T = torch.isfinite(engine_T) & (weights_T != 0)
    drift_T = torch.where(known_T, trainer_T - torch.nan_to_num(engine_T), torch.zeros_like(trainer_T))
    if rule == "sequence_mask":
        drift_T = torch.where(known_T, drift_T.sum(), drift_T)
    ratio_T = bounded_exp(drift_T)
    if rule == "truncate":
        return ratio_T.clamp(max=high), ratio_T > high
    cut_T = ratio_T > high if rule == "sequence_mask" else (ratio_T < low) | (ratio_T > high)
    return torch.where(cut_T, torch.zeros_like(ratio_T), ratio_T), cut_T


def off_policy(logp_T: Tensor, weights_T: Tensor, advantage: float, *, sampled_logprob: float, delta: float) -> bool:
    """Tell whether a row is masked (DeepSeek-V3.2, 2025, section 3.1): its advantage is negative, and the mean over its
    trained tokens of log pi_sampled - log pi exceeds `delta`.

    Args:
        sampled_logprob: mean log-probability of the trained tokens by the policy that sampled them, in the context that
            it had.
    """
    trained_T = weights_T != 0
    return advantage < 0 and bool(trained_T.any()) and sampled_logprob - float(logp_T[trained_T].mean()) > delta
