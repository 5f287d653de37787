"""Linear layers of a policy on a CPU, their weights laid out once as oneDNN reads them.

torch's own linear lays bfloat16 weights out anew in every call, and in float32 goes through MKL, which is slow on some
processors. Measured on an AMD EPYC with the layers of a policy of 135 million parameters: 1.2 to 1.9 times the speed in
bfloat16, 2 to 2.7 times in float32, the same results bit for bit in bfloat16.

An adapter in bfloat16 stays beside its layer: added to the weights, most of a step is smaller than half their last
digit, and is lost (seen: the policy sampled from was nearer to the one of the step before than to its own).

Shapes: N tokens, I inputs, O outputs.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TILE = 32  # tokens of the product that says what a token's result is; also what the layout is chosen for
# Results to compare. In bfloat16 rounding hides most differences: another order of summation shows in 2 to 10 results
# of 100,000 (seen with AMX), and in none of 65,536 too often.
ENOUGH = {torch.float32: 4096, torch.bfloat16: 2**20}


class TiledLinear(nn.Module):
    """y = x W^T + b, x (..., I) -> (..., O): the same bits of a token's result whatever tokens stand beside it.

    A library may choose another order of summation for another number of tokens. Seen of oneDNN on a Xeon: in float32
    only for one token (I = 1536), in bfloat16 for most numbers above 32. So the result is by definition that of
    products of `TILE` tokens. A number of tokens goes through one product once its results were seen to be those of
    tiles, bit for bit, on this processor.
    """

    tiled = True
    equal: ClassVar[dict[tuple[object, ...], int]] = {}  # results seen to be those of tiles; -1: some are others

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.inputs, self.outputs = plain.in_features, plain.out_features
        self.weight = plain.weight.detach()
        self.bias = None if plain.bias is None else plain.bias.detach()

    def forward(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """Multiply, and add `plus` (..., O) before the result is rounded."""
        x_NI, plus_NO = x.reshape(-1, self.inputs), None if plus is None else plus.reshape(-1, self.outputs)
        return self._same_bits(x_NI, plus_NO).view(*x.shape[:-1], self.outputs)

    def _same_bits(self, x_NI: Tensor, plus_NO: Tensor | None) -> Tensor:
        tokens = len(x_NI)
        if tokens in (0, TILE) or not self.tiled:
            return self._product(x_NI, plus_NO)
        # what the library may choose its order of summation by
        key = (
            type(self),
            x_NI.dtype,
            self.inputs,
            self.outputs,
            self.bias is None,
            plus_NO is None,
            tokens,
            torch.get_num_threads(),
        )
        results_compared = self.equal.get(key, 0)
        if results_compared >= ENOUGH.get(x_NI.dtype, 0):
            return self._product(x_NI, plus_NO)
        # until enough results of this shape were compared, the tiles are the answer: whichever path is taken, the bits
        # are the same
        by_tiles = self._tiles(x_NI, plus_NO)
        if results_compared >= 0:
            same = torch.equal(self._product(x_NI, plus_NO), by_tiles)
            self.equal[key] = results_compared + by_tiles.numel() if same else -1
        return by_tiles

    def _tiles(self, x_NI: Tensor, plus_NO: Tensor | None) -> Tensor:
        missing = -len(x_NI) % TILE
        x_parts = F.pad(x_NI, (0, 0, 0, missing)).split(TILE)
        plus_parts = [None] * len(x_parts) if plus_NO is None else F.pad(plus_NO, (0, 0, 0, missing)).split(TILE)
        parts = [self._product(x, plus) for x, plus in zip(x_parts, plus_parts, strict=True)]
        return torch.cat(parts)[: len(x_NI)]

    def _product(self, x: Tensor, plus: Tensor | None) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        return y if plus is None else y + plus


class PackedLinear(TiledLinear):
    """By oneDNN; the plain weight is not kept."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(plain)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, TILE)

    def _product(self, x: Tensor, plus: Tensor | None) -> Tensor:
        y: Tensor
        if plus is None:
            y = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        else:
            y = torch.ops.mkldnn._linear_pointwise.binary(x, plus, self.weight, self.bias, "add")
        return y


class AdaptedLinear(nn.Module):
    """`base` with a low-rank adapter beside it: + scale (x A^T) B^T. Measured of a step of 3e-4 of the weights, on a
    packed layer in bfloat16: 99 % arrives; 17 % where it is added to a result already rounded; 16 % where it is
    merged."""

    def __init__(self, base: nn.Module, down_RI: Tensor, up_OR: Tensor, scale: float) -> None:
        super().__init__()
        self.base = base
        self.down = linear(down_RI)
        self.up = linear((scale * up_OR.detach().float()).to(up_OR.dtype))

    def forward(self, x: Tensor) -> Tensor:
        plus = self.up(self.down(x))
        y: Tensor = self.base(x, plus) if isinstance(self.base, TiledLinear) else self.base(x) + plus
        return y


def linear(weight_OI: Tensor) -> nn.Linear:
    """Make torch's layer of a weight."""
    # a layer of full size would be initialised first; on the device "meta", too, by way of torch's compiler, whose
    # import takes a second
    layer = nn.Linear(1, 1, bias=False)
    layer.weight = nn.Parameter(weight_OI.detach().contiguous(), requires_grad=False)
    layer.out_features, layer.in_features = weight_OI.shape
    return layer


def pack(model: Any, tiled: bool = True) -> Any:
    """Replace the linear layers of `model` by ones that don't depend on the batch, packed where that is possible; it
    samples as before, and can't be trained or saved any more. On a GPU the layers stay as they are."""
    if model.device.type != "cpu":
        return model
    layer = PackedLinear if _works(model.dtype) else TiledLinear
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                replacement = layer(child)
                replacement.tiled = tiled
                setattr(parent, name, replacement)
    return model


def _works(dtype: torch.dtype) -> bool:
    """Tell whether this build of torch has the functions (they are those of its compiler), with the results of its own
    linear."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    plain, x = nn.Linear(48, 32, dtype=dtype), torch.linspace(-1, 1, 3 * 48).view(3, 48).to(dtype)
    try:
        return torch.allclose(PackedLinear(plain)(x), plain(x), atol=1e-2 if dtype == torch.bfloat16 else 1e-5)
    except RuntimeError:  # another signature, or a processor without this dtype
        return False
