"""FSDP2, for policies whose weights, gradients and optimiser state do not fit on one device.

Ranks run unequal numbers of segments, so nothing may synchronise within a pass: weights are gathered once and stay
until the end of the step, when one more backward scatters the gradients. Any other setting hangs or sums wrongly.
"""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from r3l.training.trie.decoder import Decoder


class ShardedDecoder(Decoder):
    """A decoder whose weights are sharded over the ranks of the default process group."""

    def __init__(self, model: Any, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(model, dtype)
        in_bfloat16 = dtype == torch.bfloat16
        precision = (
            MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
            if in_bfloat16
            else MixedPrecisionPolicy()
        )
        for block in self.body.layers:
            fully_shard(block, reshard_after_forward=False, mp_policy=precision)
        fully_shard(model, reshard_after_forward=False, mp_policy=precision)
        body = self.body
        self.parts = [*body.layers, model]
        model.run_body = types.MethodType(lambda _, **inputs: body(**inputs), model)
        register_fsdp_forward_method(model, "run_body")  # the root's hooks must see every call of the body
        self.body = model.run_body

    @contextmanager
    def in_float32(self, held: torch.dtype) -> Iterator[None]:
        """Leave the weights as they are: they are gathered in the dtype of the passes."""
        yield

    def begin(self) -> None:
        """Accumulate gradients on this rank. Call it before the first backward of a step."""
        self._synchronise(False)

    def finish(self) -> None:
        """Scatter the gradients to their owners by a pass without weight, the same on every rank, after the last
        one."""
        self._synchronise(True)
        state_1H, _ = self.forward(torch.zeros(1, dtype=torch.int64, device=self.device), 0, [])
        (
            0.0 * torch.nn.functional.linear(state_1H, self.head.weight.to(state_1H.dtype), self.head.bias)
        ).sum().backward()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(dist.get_world_size())  # FSDP2 takes the ranks' mean: the update wants their sum

    def refresh(self) -> None:
        self.release()
        for part in self.parts:
            part.unshard()

    def release(self) -> None:
        for part in self.parts:
            part.reshard()

    def _synchronise(self, now: bool) -> None:
        self.model.set_requires_gradient_sync(now)
        self.model.set_is_last_backward(now)
        self.model.set_reshard_after_backward(now)


def whole(tensor: Tensor) -> Tensor:
    """Gather a tensor on the CPU. Every rank must call this."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def sharded_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Lay out a whole tensor as a parameter is."""
    tensor = tensor.to(parameter.device)
    return (
        distribute_tensor(tensor, parameter.device_mesh, parameter.placements)
        if isinstance(parameter, DTensor)
        else tensor
    )
