"""Drawing tokens: one uniform number per request and token, so that a reply does not depend on the rest of the batch.

Shapes: R requests, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from r3l.errors import EngineError


def draw(
    logits_RV: Tensor, temperatures_R: Sequence[float], uniforms_R: Sequence[float], allowed_RV: Tensor | None = None
) -> tuple[list[int], list[float]]:
    """Draw tokens by inverse of the cumulative distribution (the likeliest where the temperature is 0), and give their
    log-probabilities under the distribution at temperature 1, before `allowed_RV` takes tokens out."""
    logits = logits_RV.float()
    logprobs_RV = logits.log_softmax(-1)
    if logprobs_RV[:, :1].isnan().any():
        raise EngineError(
            "the policy gives tokens no probabilities but NaN: its numbers overflow in this dtype; set "
            "policy.dtype=float32, or go on from an earlier iteration"
        )
    if allowed_RV is not None:
        logits = logits.masked_fill(~allowed_RV, -torch.inf)
    greedy = all(temperature == 0 for temperature in temperatures_R)
    tokens_R = logits.argmax(-1)
    if not greedy:
        temperatures = torch.tensor(temperatures_R, device=logits.device)
        drawn_R = _inverse(logits / temperatures.clamp(min=1e-6)[:, None], uniforms_R)
        tokens_R = torch.where(temperatures > 0, drawn_R, tokens_R)
    return tokens_R.tolist(), logprobs_RV.gather(1, tokens_R[:, None])[:, 0].tolist()


def _inverse(scaled_RV: Tensor, uniforms_R: Sequence[float]) -> Tensor:
    """Find the first token whose cumulative probability exceeds the uniform number: never one of probability 0."""
    cumulative_RV = scaled_RV.softmax(-1).cumsum(-1)
    total_R1 = cumulative_RV[:, -1:].contiguous()
    target_R1 = torch.tensor(uniforms_R, device=scaled_RV.device)[:, None] * total_R1
    # rounding may bring the target up to the total, which lies behind the last token
    target_R1 = torch.minimum(target_R1, torch.nextafter(total_R1, torch.zeros_like(total_R1)))
    return torch.searchsorted(cumulative_RV, target_R1, right=True)[:, 0]
