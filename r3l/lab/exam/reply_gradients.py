"""The gradient of single replies, and their log-probabilities, by a policy that is not trained."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from r3l.config.sections import PolicySettings
from r3l.training.policy import load_policy
from r3l.training.rows import UpdateRow
from r3l.training.trie.layouts import Limits, TrieLayout

Floats = NDArray[np.float64]
LIMITS = Limits(micro_batch_tokens=16384, logits_chunk=1024)


class ReplyGradients:
    """A policy in a folder, loaded in float32 on a CPU. Its weights stay as they are."""

    def __init__(self, path: str, base_path: str | None, settings: PolicySettings) -> None:
        self.policy = load_policy(path, base_path, settings, dtype="float32", device=torch.device("cpu"))
        self.layout = TrieLayout()

    def products(self, replies: Iterable[tuple[UpdateRow, slice]]) -> Floats:
        """Multiply the gradients of D replies with each other, shape [D, D]. Each is a slice of a row's trained
        tokens."""
        whole = torch.stack([self.gradient(row, tokens) for row, tokens in replies])
        products: Floats = (whole @ whole.T).numpy()
        return products

    def gradient(self, row: UpdateRow, tokens: slice) -> torch.Tensor:
        """Differentiate the log-probability of one reply with respect to all trainable weights."""
        positions = row.positions[tokens]
        alone = replace(row, token_ids=row.token_ids[: positions[-1] + 1], positions=positions)
        self.policy.model.zero_grad(set_to_none=True)
        self.layout.backward(self.policy.decoder, [alone], [np.ones(len(positions))], LIMITS)
        return torch.cat([one.grad.reshape(-1) for _, one in self.policy.trainable() if one.grad is not None])

    def score(self, rows: Sequence[UpdateRow]) -> list[Floats]:
        """Compute the log-probabilities of each row's trained tokens."""
        return self.layout.score(self.policy.decoder, rows, LIMITS).logps if rows else []
