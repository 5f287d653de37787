"""KL(pi || reference) per token, estimated on sampled tokens. With d = log ref - log pi:

k1 = -d        k2 = d^2 / 2        k3 = exp(d) - d - 1     (all of expectation KL or close to it; k3 is never negative)
"""

from collections.abc import Callable

from torch import Tensor

ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda d_T: -d_T,
    "k2": lambda d_T: d_T.square() / 2,
    "k3": lambda d_T: d_T.exp() - d_T - 1,
}


def kl_penalty(logp_T: Tensor, reference_T: Tensor, weights_T: Tensor, estimator: str) -> Tensor:
    """Sum weights[t] * KL_t over the tokens, a scalar. Raise `KeyError` for an estimator that is not in
    `ESTIMATORS`."""
    return (weights_T * ESTIMATORS[estimator](reference_T - logp_T)).sum()
