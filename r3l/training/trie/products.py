"""Matrix products in float32 by oneDNN on processors without AVX-512, on some of which MKL's run at half speed.

Measured on an AMD EPYC without it, one thread, the shapes of a segment: 2.0 to 2.4 times in the forward pass, 1.4 to
2.2 in the backward pass. On one with it MKL is ahead, the more the fewer the tokens, and keeps the products. The sums
are in another order, within rounding. Other dtypes and devices are left alone: bfloat16 goes through oneDNN anyway.

Shapes: N tokens, I inputs, O outputs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEWEST = 16  # tokens from which it pays


class FastProducts(TorchFunctionMode):
    """Replace every torch.nn.functional.linear of float32 on a CPU by `linear` within the block, where that is faster
    or `always`."""

    def __init__(self, always: bool = False) -> None:
        super().__init__()
        self.replaces = always or PREFERRED

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.nn.functional.linear and self.replaces and not kwargs and suits(args[0], args[1]):
            return linear(*args)
        return function(*args, **(kwargs or {}))


def suits(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() >= FEWEST * x.shape[-1]
        and not torch.is_autocast_enabled("cpu")
        and AVAILABLE
    )


def linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Map x (..., I) to (..., O), differentiable once."""
    y: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight_OI, bias_O)  # type: ignore[no-untyped-call, unused-ignore]
    return y.view(*x.shape[:-1], -1)


def product(a_NI: Tensor, b_OI: Tensor) -> Tensor:
    """Multiply a b^T (N, O)."""
    return _by_onednn(a_NI, b_OI) if PREFERRED else a_NI @ b_OI.T


def _by_onednn(a_NI: Tensor, b_OI: Tensor) -> Tensor:
    y: Tensor = (
        torch.ops.mkldnn._linear_pointwise(a_NI, b_OI, None, "none", [], "") if suits(a_NI, b_OI) else a_NI @ b_OI.T
    )
    return y


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
        return y

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        slope_NO, (x_NI, weight_OI), needs_grad = outer[0].contiguous(), ctx.saved_tensors, ctx.needs_input_grad
        return (
            _by_onednn(slope_NO, weight_OI.T) if needs_grad[0] else None,
            _by_onednn(slope_NO.T.contiguous(), x_NI.T.contiguous()) if needs_grad[1] else None,
            slope_NO.sum(0) if needs_grad[2] else None,
        )


def _available() -> bool:
    """Tell whether this build of torch has the function (it is one of its compiler's) and computes it rightly."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    a, b = torch.linspace(-1, 1, 60).view(20, 3), torch.linspace(0, 1, 12).view(4, 3)
    try:
        return torch.allclose(torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], ""), a @ b.T, atol=1e-6)
    except RuntimeError:
        return False


AVAILABLE = _available()
PREFERRED = AVAILABLE and torch.backends.cpu.get_cpu_capability() != "AVX512"
