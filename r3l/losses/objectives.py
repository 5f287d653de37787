"""The losses of a row: pure functions of its log-probabilities, and what each needs from the trainer.

Shapes: T = trained tokens of one row. All tensors are float64 or float32 on one device.

    logp_T       log pi(token | everything before it) of the policy that is trained
    old_T        the same of the behaviour policy, as recomputed by the trainer
    weights_T    normaliser x mask, >= 0
    advantage    A-hat of the row, or of each of its tokens [T] where turns have their own
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RowLoss:
    """`value` is the row's sum_t weights[t] * l_t, a scalar with a gradient; the rest are counts for the metrics.

    A *ratio* is counted once per token, or once per sequence where the objective clips sequences.
    """

    value: Tensor
    ratios: int = 0
    clipped: int = 0
    ratio_sum: float = 0.0


Loss = Callable[..., RowLoss]
Advantage = float | Tensor


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss and what it needs from the trainer.

    `straight`: the gradient dL/dlogp does not depend on logp, so no scoring pass is needed.
    `uses_advantage`: a row of advantage 0 has no gradient and is left out.
    `balances`: its clip bounds are chosen for the whole batch (r3l/losses/balance.py).
    """

    loss: Loss
    straight: bool = False
    uses_ratio: bool = False
    uses_advantage: bool = True
    balances: bool = False


def policy_gradient(logp_T: Tensor, old_T: Tensor, advantage: Advantage, weights_T: Tensor) -> RowLoss:
    """Compute REINFORCE on the trained tokens: l_t = -A log pi_t (R3L; RAFT with A = 1; OPMD with 1 / (1 + tau) in the
    coefficient)."""
    return RowLoss(-(weights_T * advantage * logp_T).sum())


def cross_entropy(logp_T: Tensor, old_T: Tensor, advantage: Advantage, weights_T: Tensor) -> RowLoss:
    """Compute the loss of supervised rows: l_t = -log pi_t, whatever the advantage (the meta-task term, and RAFT)."""
    return RowLoss(-(weights_T * logp_T).sum())


def clipped_ratio(
    logp_T: Tensor, old_T: Tensor, advantage: Advantage, weights_T: Tensor, *, clip_low: float, clip_high: float
) -> RowLoss:
    """Compute PPO's clipped surrogate: l_t = -min(r_t A, clip(r_t, 1 - low, 1 + high) A) with r_t = pi_t / pi_old,t
    (GRPO, DAPO)."""
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


def cispo(
    logp_T: Tensor, old_T: Tensor, advantage: Advantage, weights_T: Tensor, *, clip_low: float, clip_high: float
) -> RowLoss:
    """Compute CISPO's loss (MiniMax-M1 2025): l_t = -sg(clip(r_t, 1 - low, 1 + high)) A log pi_t. What is clipped is
    how much a token counts, so none loses its gradient."""
    ratio_T = (logp_T - old_T).detach().exp()
    bounded_T = ratio_T.clamp(1 - clip_low, 1 + clip_high)
    trained_T = weights_T != 0
    return RowLoss(
        value=-(weights_T * bounded_T * advantage * logp_T).sum(),
        ratios=int(trained_T.sum()),
        clipped=int(((bounded_T != ratio_T) & trained_T).sum()),
        ratio_sum=float(ratio_T[trained_T].sum()),
    )


def balanced_ratio(
    logp_T: Tensor,
    old_T: Tensor,
    advantage: Advantage,
    weights_T: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    **search: float,
) -> RowLoss:
    """Compute BAPO's loss: PPO's clipped surrogate between bounds that `search`, the other arguments of
    `balance.candidates`, has moved for the whole batch. Until it has, they stand where the search begins."""
    return clipped_ratio(logp_T, old_T, advantage, weights_T, clip_low=clip_low, clip_high=clip_high)


def sequence_ratio(
    logp_T: Tensor, old_T: Tensor, advantage: Advantage, weights_T: Tensor, *, clip_low: float, clip_high: float
) -> RowLoss:
    """Compute GSPO's loss: one ratio per sequence, s = exp(mean over trained tokens of (log pi_t - log pi_old,t)),
    clipped as a whole. The token form of the GSPO paper (its Eq. 13 and 14): s_t = sg[s] pi_t / sg[pi_t], so its value
    is s and the gradient of token t is s A_t."""
    trained_T = weights_T != 0
    if not bool(trained_T.any()):
        return RowLoss((weights_T * logp_T).sum())
    # masked tokens do not count: a retry's prefix was sampled by its base, not by this sequence
    sequence = (logp_T - old_T).detach()[trained_T].mean().exp()
    ratio_T = sequence * (logp_T - logp_T.detach()).exp()
    plain_T = ratio_T * advantage
    bounded_T = ratio_T.clamp(1 - clip_low, 1 + clip_high) * advantage
    return RowLoss(
        value=-(weights_T * torch.minimum(plain_T, bounded_T)).sum(),
        ratios=1,
        clipped=int(bool(((bounded_T < plain_T) & trained_T).any())),
        ratio_sum=float(sequence),
    )


def shaped_ratio(logp_T: Tensor, old_T: Tensor, advantage: Advantage, weights_T: Tensor, *, gamma: float) -> RowLoss:
    """Compute Critique-GRPO's loss of refinements: l_t = -A f(pi_t), f(p) = p / (p + gamma), so that unlikely tokens
    gain the most."""
    p_T = logp_T.exp()
    return RowLoss(-(weights_T * advantage * p_T / (p_T + gamma)).sum())


LOSSES: dict[str, Objective] = {
    "policy_gradient": Objective(policy_gradient, straight=True),
    "cross_entropy": Objective(cross_entropy, straight=True, uses_advantage=False),
    "clipped_ratio": Objective(clipped_ratio, uses_ratio=True),
    "cispo": Objective(cispo, uses_ratio=True),
    "balanced_ratio": Objective(balanced_ratio, uses_ratio=True, balances=True),
    "sequence_ratio": Objective(sequence_ratio, uses_ratio=True),
    "shaped_ratio": Objective(shaped_ratio),
}


def bounded_exp(log_T: Tensor) -> Tensor:
    """Compute the exponential within 20 nats, beyond which it says no more."""
    return log_T.clamp(-20.0, 20.0).exp()


# d = log ref - log pi; all are of expectation KL(pi || reference) or close to it, and k3 is never negative
ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda d_T: -d_T,
    "k2": lambda d_T: d_T.square() / 2,
    "k3": lambda d_T: d_T.exp() - d_T - 1,
}


def kl_penalty(logp_T: Tensor, reference_T: Tensor, weights_T: Tensor, estimator: str) -> Tensor:
    """Sum weights[t] * KL_t over the tokens, a scalar. Raise `KeyError` for an estimator that is not in
    `ESTIMATORS`."""
    return (weights_T * ESTIMATORS[estimator](reference_T - logp_T)).sum()
