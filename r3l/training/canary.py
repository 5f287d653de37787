"""The canary of an update: tokens whose log-probabilities the engine must reproduce after it has loaded the new policy.

Taken from what was trained on, where a step moves a policy most; and scored before the step too, so that the engine
tells a policy that is one step old from rounding, which in bfloat16 is as large. Scored in float32, with weights as the
engine holds them: rounding is then on one side only (with FSDP2 in the dtype of the passes).

Shapes: L tokens, H hidden width.
"""

from collections.abc import Sequence

import torch

from r3l.config.sections import PolicySettings
from r3l.training.policy import DTYPES, Policy, load_policy
from r3l.training.shards import Group, read_groups

TOKENS = 256  # fewer, and chance decides which policy is closer; more cost every load
SPREAD = 32


class Canary:
    """Scored by `look` before the step, where one is taken, and by `result` after it."""

    def __init__(
        self, policy: Policy, groups: Sequence[Group], settings: PolicySettings, given: Sequence[int] = ()
    ) -> None:
        """Where nothing is `given` or trained on: ids spread over the vocabulary."""
        self.policy, self.dtype = policy, DTYPES[settings.dtype]
        self.token_ids = list(given) or _trained(groups, min(TOKENS, settings.context_tokens // 2)) or _spread(policy)
        self.before: list[float] = []

    def look(self) -> None:
        """Score the tokens before the step, while the optimiser has the parameters: a pass gathers sharded ones, and
        the model holds other parameters after it."""
        self.before = self._logprobs()

    def result(self) -> dict[str, list[int] | list[float]]:
        """Score the tokens once more and give what `canary.json` holds."""
        return {"token_ids": self.token_ids, "logprobs": self._logprobs(), "before": self.before}

    def _logprobs(self) -> list[float]:
        """Score token_ids[1:], in nats."""
        decoder = self.policy.decoder
        ids_L = torch.tensor(self.token_ids, device=decoder.device)
        with torch.no_grad(), decoder.in_float32(self.dtype):
            hidden_LH, _ = decoder.forward(ids_L[:-1], 0, [])
            weight = decoder.head.weight.to(self.dtype).to(hidden_LH.dtype)
            logits_LV = torch.nn.functional.linear(hidden_LH, weight, decoder.head.bias).float()
        return [float(x) for x in logits_LV.log_softmax(-1).gather(1, ids_L[1:, None])[:, 0]]


def starting_logprobs(
    path: str, base_path: str | None, settings: PolicySettings, token_ids: Sequence[int]
) -> list[float]:
    """Score token_ids[1:] with the trainer, under the policy in `path`, on the CPU.

    Args:
        base_path: of an adapter.

    Raises:
        TrainingError: the trainer can't run that model.
    """
    policy = load_policy(
        path, base_path, settings, dtype=settings.dtype, device=torch.device("cpu"), trainable=False, segments=True
    )
    canary = Canary(policy, [], settings, token_ids)
    canary.look()
    return canary.before


def _trained(groups: Sequence[Group], count: int) -> list[int]:
    """Take the last tokens of the first row with a gradient, which end with a reply. The same on every rank."""
    return [int(token) for row in read_groups(groups[:1])[:1] for token in row.token_ids[-count:]]


def _spread(policy: Policy) -> list[int]:
    size = int(policy.decoder.head.weight.shape[0])
    # a step by a large prime visits the vocabulary evenly, special tokens at its ends included
    return [(7919 * (number + 1)) % size for number in range(SPREAD)]
