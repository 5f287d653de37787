"""Functions of single numbers, computed in pieces that torch does not share out among threads.

torch cuts a large tensor at places that depend on its size and on the number of threads, and computes the numbers that
are left over at the end of each part one by one, with other roundings of exp, sin and cos than eight or sixteen at a
time. Pieces below its limit of sharing are computed by one thread; with a multiple of 8 tokens nothing is left over.
"""

from typing import Any

import torch
from torch import Tensor, nn

SHARED = 32768  # numbers from which torch uses several threads


class Activation(nn.Module):
    """`inner` (..., N, F), some tokens at a time."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.inner(part) for part in x.split(tokens_of(x.shape[-1]), -2)], -2)


class Rotations(nn.Module):
    """Cosines and sines (1, N, D) of positions (1, N), some tokens at a time."""

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__()
        self.inner = inner
        self.size = size

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, ...]:
        parts = [self.inner(x, part) for part in position_ids.split(tokens_of(self.size), -1)]
        return tuple(torch.cat(side, -2) for side in zip(*parts, strict=True))


def tokens_of(numbers: int) -> int:
    """Count the tokens of a piece, of so many numbers each."""
    return max(8, SHARED // numbers // 8 * 8)


def in_pieces(model: Any) -> Any:
    """Replace the activations and the rotary embedding of a model on a CPU."""
    if model.device.type != "cpu":
        return model
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for parent in list(model.modules()):
        if isinstance(getattr(parent, "act_fn", None), nn.Module):
            parent.act_fn = Activation(parent.act_fn)
        if isinstance(getattr(parent, "rotary_emb", None), nn.Module):
            parent.rotary_emb = Rotations(parent.rotary_emb, size)
    return model
