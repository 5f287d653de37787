"""Linear layers of a policy on a CPU, their weights laid out once as oneDNN reads them.

torch's own linear lays bfloat16 weights out anew in every call, and in float32 goes through MKL, which is slow on some
processors. Measured on an AMD EPYC with the layers of a policy of 135 million parameters: 1.2 to 1.9 times the speed in
bfloat16, 2 to 2.7 times in float32, the same results bit for bit in bfloat16.

An adapter in bfloat16 stays beside its layer: added to the weights, most of a step is smaller than half their last
digit, and is lost (seen: the policy sampled from was nearer to the one of the step before than to its own).

Shapes: N tokens, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

USUAL_TOKENS = 32  # of a step: the layout is chosen for it, and right for any number


class PackedLinear(nn.Module):
    """y = x W^T + b, x (..., I) -> (..., O). The plain weight is not kept."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(plain.weight.detach(), USUAL_TOKENS)
        self.bias = None if plain.bias is None else plain.bias.detach()

    def forward(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """Multiply, and add `plus` (..., O) before the result is rounded."""
        if plus is None:
            y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        else:
            y = torch.ops.mkldnn._linear_pointwise.binary(x, plus, self.packed, self.bias, "add")
        return y


class AdaptedLinear(nn.Module):
    """`base` with a low-rank adapter beside it: + scale (x A^T) B^T. Measured of a step of 3e-4 of the weights, on a
    packed layer in bfloat16: 99 % arrives; 17 % where it is added to a result already rounded; 16 % where it is
    merged."""

    def __init__(self, base: nn.Module, down_RI: Tensor, up_OR: Tensor, scale: float) -> None:
        super().__init__()
        self.base = base
        self.down_RI: Tensor
        self.up_OR: Tensor
        self.register_buffer("down_RI", down_RI.detach().contiguous())
        self.register_buffer("up_OR", (scale * up_OR.detach().float()).to(up_OR.dtype).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        plus = F.linear(F.linear(x, self.down_RI), self.up_OR)
        y: Tensor = self.base(x, plus) if isinstance(self.base, PackedLinear) else self.base(x) + plus
        return y


def pack(model: Any) -> Any:
    """Return `model` with packed linear layers where that is possible; it samples as before, and can't be trained or
    saved any more."""
    if model.device.type != "cpu" or not _works(model.dtype):
        return model
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child))
    return model


def _works(dtype: torch.dtype) -> bool:
    """Return whether this build of torch has the functions (they are those of its compiler), with the results of its
    own linear."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    plain, x = nn.Linear(48, 32, dtype=dtype), torch.linspace(-1, 1, 3 * 48).view(3, 48).to(dtype)
    try:
        return torch.allclose(PackedLinear(plain)(x), plain(x), atol=1e-2 if dtype == torch.bfloat16 else 1e-5)
    except RuntimeError:  # another signature, or a processor without this dtype
        return False
