"""The off-policy sequence mask of DeepSeek-V3.2 (2025, section 3.1): bad rows that the policy would not write any more
are left out."""

from torch import Tensor


def off_policy(logp_T: Tensor, weights_T: Tensor, advantage: float, *, sampled_logprob: float, delta: float) -> bool:
    """Tell whether a row is masked: its advantage is negative, and the mean over its trained tokens of log pi_sampled -
    log pi exceeds `delta`.

    Args:
        sampled_logprob: mean log-probability of the trained tokens by the policy that sampled them, in the context that
            it had.
    """
    trained_T = weights_T != 0
    return advantage < 0 and bool(trained_T.any()) and sampled_logprob - float(logp_T[trained_T].mean()) > delta
