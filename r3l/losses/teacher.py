"""Advantages of single tokens by a teacher: the same policy behind a context that knows more.

gap_t = log pi_T(t) - log pi(t), without a gradient.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from r3l.losses.objectives import Advantage, bounded_exp

Rule = Literal["gap", "reweigh"]


def taught_advantage(
    advantage: Advantage, logp_T: Tensor, teacher_T: Tensor, *, rule: Rule, mix: float, low: float, high: float
) -> Tensor:
    """Compute the advantage of each token, shape [T].

    gap: A x gap, whose policy gradient is that of KL(pi || pi_T) on what pi sampled (SDPO). reweigh:
    A ((1 - mix) + mix clip(exp(sign(A) gap), low, high)): the teacher says which tokens an outcome is due to, and never
    turns its sign (RLSD, SERL).
    """
    gap_T = teacher_T - logp_T
    whole_T = torch.as_tensor(advantage, dtype=gap_T.dtype).expand_as(gap_T)
    if rule == "gap":
        return whole_T * gap_T
    share_T = bounded_exp(whole_T.sign() * gap_T).clamp(low, high)
    return whole_T * ((1 - mix) + mix * share_T)


def mean_advantage(
    advantage: float, gaps: Sequence[float], *, rule: Rule, mix: float, low: float, high: float
) -> float:
    """Average the advantages that a teacher makes of a reply's gaps; 0 of an empty reply."""
    gap_T = torch.tensor(gaps, dtype=torch.float64)
    taught_T = taught_advantage(advantage, torch.zeros_like(gap_T), gap_T, rule=rule, mix=mix, low=low, high=high)
    return float(taught_T.mean()) if len(gaps) else 0.0
