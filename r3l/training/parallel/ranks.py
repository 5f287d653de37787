"""Several processes: whole groups are split over the ranks by the cost of their tries, and gradients are summed once at
the end.

No wrapper hooks into the backward pass: ranks run unequal numbers of segments, which hooks that synchronise answer with
wrong gradients or by hanging.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from r3l.training.gradients import Measures
from r3l.training.shards import Group

BUCKET_NUMBERS = 1 << 24  # numbers summed in one call


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among `size` of them."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, groups: Sequence[Group]) -> list[Group]:
        """Choose this rank's groups. The most expensive group is assigned first, each to the rank with the least cost
        so far; then they keep their own order."""
        loads = [0] * self.size
        mine: set[str] = set()
        # every rank makes the same assignment from the same costs: nothing has to be sent
        for group in sorted(groups, key=lambda group: (-group.cost, group.group_id)):
            rank = loads.index(min(loads))
            loads[rank] += group.cost
            if rank == self.rank:
                mine.add(group.group_id)
        return [group for group in groups if group.group_id in mine]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over the ranks, in buckets. Sharded ones are sums already."""
        bucket: list[torch.Tensor] = []
        numbers = 0
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(
                    parameter
                )  # where another rank has one, or AdamW would lose count of its steps
            if self.size == 1 or isinstance(parameter, DTensor):
                continue
            # few large sums instead of one per parameter: each call costs a round trip
            bucket.append(parameter.grad)
            numbers += parameter.numel()
            if numbers >= BUCKET_NUMBERS:
                _sum(bucket)
                bucket, numbers = [], 0
        _sum(bucket)

    def sum_measures(self, measures: Measures) -> Measures:
        """Sum the measures over all ranks."""
        if self.size == 1:
            return measures
        sums = torch.tensor(astuple(measures), dtype=torch.float64, device=_device())
        dist.all_reduce(sums)
        return Measures(*sums.tolist())

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all ranks, on the CPU."""
        if self.size == 1:
            return values
        total = values.to(_device())
        dist.all_reduce(total)
        return total.cpu()

    def any(self, flag: bool) -> bool:
        """Tell whether the flag is up on any rank."""
        if self.size == 1:
            return flag
        flag_max = torch.tensor([float(flag)], device=_device())
        dist.all_reduce(flag_max, op=dist.ReduceOp.MAX)
        return bool(flag_max.item())


def join() -> Ranks:
    """Join the process group that torchrun prepared, or be one process alone. Ranks share a GPU where there are fewer,
    which NCCL refuses."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Ranks()
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
    dist.init_process_group("nccl" if gpus >= int(os.environ.get("LOCAL_WORLD_SIZE", "1")) else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size())


def leave() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _sum(bucket: list[torch.Tensor]) -> None:
    if not bucket:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
    dist.all_reduce(flat)
    for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
        gradient.copy_(part.view_as(gradient))
