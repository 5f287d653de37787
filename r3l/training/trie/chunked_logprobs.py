"""log pi of chosen tokens without holding all logits: one chunk at a time, with gradients computed in the forward pass.

Shapes: N = chosen positions, H = hidden width, V = vocabulary.
"""

from typing import Any

import torch
from torch import Tensor


def token_logprobs(hidden_NH: Tensor, head: torch.nn.Linear, targets_N: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Score the targets without a gradient: (log-probabilities, entropies of the distributions in nats), both [N]."""
    with torch.no_grad():
        weight_VH, bias_V = head.weight.to(hidden_NH.dtype), _narrow(head.bias, hidden_NH)
        parts = [
            _chunk(hidden_NH[i : i + chunk], weight_VH, bias_V, targets_N[i : i + chunk])[:2]
            for i in range(0, len(targets_N), chunk)
        ]
    if not parts:
        return hidden_NH.new_zeros(0), hidden_NH.new_zeros(0)
    return torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts])


def weighted_logprobs(
    hidden_NH: Tensor, head: torch.nn.Linear, targets_N: Tensor, gradient_N: Tensor, chunk: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute (sum_n gradient[n] logp[n] with a gradient, logp [N], entropies [N])."""
    weighted_sum, logps_N, entropies_N = _WeightedLogprobs.apply(  # type: ignore[no-untyped-call, unused-ignore]
        hidden_NH, head.weight, head.bias, targets_N, gradient_N, chunk
    )
    return weighted_sum, logps_N, entropies_N


def _narrow(parameter: Tensor | None, like: Tensor) -> Tensor | None:
    return None if parameter is None else parameter.to(like.dtype)


def _chunk(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = torch.nn.functional.linear(hidden, weight, bias)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    p = log_p.exp()
    return log_p.gather(1, targets[:, None])[:, 0], -(p * log_p).sum(-1), p


class _WeightedLogprobs(torch.autograd.Function):
    """d/dlogits of sum_n g[n] logp[n] is g[n] (onehot - p): known as soon as the logits are, so they are dropped at
    once."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        gradient_N: Tensor,
        chunk: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weight, bias = weight_VH.to(hidden_NH.dtype), _narrow(bias_V, hidden_NH)
        hidden_gradient = torch.empty_like(hidden_NH)
        weight_gradient = torch.zeros_like(weight_VH) if ctx.needs_input_grad[1] else None
        bias_gradient = torch.zeros_like(bias_V) if bias_V is not None and ctx.needs_input_grad[2] else None
        logps, entropies = [], []
        for i in range(0, len(targets_N), chunk):
            part_NH, targets, g = hidden_NH[i : i + chunk], targets_N[i : i + chunk], gradient_N[i : i + chunk]
            logp, entropy, p = _chunk(part_NH, weight, bias, targets)
            g = g.to(p.dtype)[:, None]
            # p becomes the gradient in place: a chunk's [n, V] probabilities exist once
            slope = p.mul_(-g).scatter_add_(1, targets[:, None], g).to(weight.dtype)
            hidden_gradient[i : i + chunk] = slope @ weight
            if weight_gradient is not None:
                _add_product(weight_gradient, slope, part_NH)
            if bias_gradient is not None:
                bias_gradient += slope.sum(0)
            logps.append(logp)
            entropies.append(entropy)
        logp_N, entropy_N = torch.cat(logps), torch.cat(entropies)
        # gradients instead of activations are kept: backward only scales them by what flows in
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.mark_non_differentiable(logp_N, entropy_N)
        return (gradient_N.to(logp_N.dtype) * logp_N).sum(), logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        slopes = [
            None if unscaled is None else unscaled * outer[0].to(unscaled.dtype) for unscaled in ctx.saved_tensors
        ]
        return (*slopes, None, None, None)


def _add_product(total_VH: Tensor, slope_NV: Tensor, hidden_NH: Tensor) -> None:
    if total_VH.dtype == slope_NV.dtype:
        total_VH.addmm_(slope_NV.T, hidden_NH)
    else:
        total_VH += slope_NV.T @ hidden_NH
