"""The type of a loss: a pure function of one row's log-probabilities.

Shapes: T = trained tokens of one row. All tensors are float64 or float32 on one device.

    logp_T       log pi(token | everything before it) of the policy that is trained
    old_T        the same of the behaviour policy, as recomputed by the trainer
    weights_T    normaliser x mask, >= 0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class RowLoss:
    """`value` is the row's sum_t weights[t] * l_t, a scalar with a gradient; the rest are counts for the metrics.

    A *ratio* is counted once a token, or once a sequence where the objective clips sequences.
    """

    value: Tensor
    ratios: int = 0
    clipped: int = 0
    ratio_sum: float = 0.0


Loss = Callable[..., RowLoss]


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss and what it needs from the trainer.

    `straight`: the gradient dL/dlogp does not depend on logp, so no scoring pass is needed.
    `uses_advantage`: a row of advantage 0 has no gradient and is left out.
    """

    loss: Loss
    straight: bool = False
    uses_ratio: bool = False
    uses_advantage: bool = True
