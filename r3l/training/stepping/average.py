"""The teacher as an average of policies: after each update it moves a part of the way to the newest one.

theta_T <- theta_T + rate (theta - theta_T)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from r3l.errors import TrainingError
from r3l.training.checkpoint import TEACHER, gather_whole
from r3l.training.parallel.fsdp import sharded_like
from r3l.training.policy import Policy


class Average:
    """The averaged values of a policy's trainable weights, in float32 and laid out as these are. Without a folder that
    has one it begins as the policy itself."""

    def __init__(self, policy: Policy, folder: str | None) -> None:
        self.policy, self.named = policy, dict(policy.trainable())
        file = Path(folder or "") / TEACHER
        self.values = {name: parameter.detach().clone() for name, parameter in self.named.items()}
        if not folder or not file.is_file():
            return
        try:
            kept = load_file(file)
        except (OSError, SafetensorError) as error:
            raise TrainingError(f"{file}: {error}; put it back from a copy") from error
        if {name: one.shape for name, one in kept.items()} != {name: one.shape for name, one in self.values.items()}:
            raise TrainingError(f"{file}: the average of another policy; start afresh with another run")
        self.values = {name: sharded_like(kept[name], parameter) for name, parameter in self.named.items()}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the policy be the average, and itself again afterwards, bit for bit."""
        own = {name: parameter.detach().clone() for name, parameter in self.named.items()}
        try:
            self._put(self.values)
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def move(self, rate: float) -> None:
        """Move towards the policy as it is now."""
        for name, parameter in self.named.items():
            self.values[name] += rate * (parameter.detach() - self.values[name])

    def tensors(self, keep: bool) -> dict[str, Tensor]:
        """Gather what is saved. See `gather_whole`."""
        return gather_whole(self.values.items(), keep)

    @torch.no_grad()
    def _put(self, values: dict[str, Tensor]) -> None:
        for name, parameter in self.named.items():
            parameter.copy_(values[name])
        self.policy.decoder.refresh()
