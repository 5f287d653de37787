"""Matrix products in float32 by oneDNN. With torch's own, MKL's, which the update takes, a recipe would give other
weights than those that are known of it: the sums are in another order. Other dtypes and devices are left alone:
bfloat16 goes through oneDNN anyway.

Shapes: N tokens, I inputs, O outputs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEWEST = 16  # tokens from which on they are taken


class OneDNNProducts(TorchFunctionMode):
    """Replace every torch.nn.functional.linear of float32 on a CPU by `linear` within the block."""

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.nn.functional.linear and not kwargs and suits(args[0], args[1]):
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
    """Multiply a b^T (N, O), by oneDNN where it suits."""
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
            product(slope_NO, weight_OI.T) if needs_grad[0] else None,
            product(slope_NO.T.contiguous(), x_NI.T.contiguous()) if needs_grad[1] else None,
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
