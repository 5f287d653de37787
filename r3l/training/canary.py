"""The canary of an update: tokens whose log-probabilities the engine has to find again once it has loaded the new policy.

Taken from what was trained on, where a step moves a policy most; and scored before the step too, so that the engine tells a
policy that is one step old from rounding, which in bfloat16 is as large.
"""

from __future__ import annotations

from collections.abc import Sequence

from r3l.training.policy import Policy, canary_logprobs
from r3l.training.shards import Group, read_groups

TOKENS = 256  # fewer, and chance decides which policy is closer; more cost every load
SPREAD = 32


class Canary:
    """Scored by `look` before the step, where one is taken, and by `result` after it."""

    def __init__(self, policy: Policy, groups: Sequence[Group], context_tokens: int, given: Sequence[int] = ()) -> None:
        """Where nothing is `given` or trained on: ids spread over the vocabulary."""
        self.policy = policy
        self.token_ids = list(given) or _trained(groups, min(TOKENS, context_tokens // 2)) or _spread(policy)
        self.before: list[float] = []

    def look(self) -> None:
        """The optimiser has its parameters by now: a pass gathers sharded ones, and they are others then."""
        self.before = canary_logprobs(self.policy, self.token_ids)

    def result(self) -> dict[str, list[int] | list[float]]:
        """What `canary.json` holds."""
        return {"token_ids": self.token_ids, "logprobs": canary_logprobs(self.policy, self.token_ids), "before": self.before}


def _trained(groups: Sequence[Group], count: int) -> list[int]:
    """The last tokens of the first row with a gradient: they end with a reply. The same on every rank."""
    return [int(token) for row in read_groups(groups[:1])[:1] for token in row.token_ids[-count:]]


def _spread(policy: Policy) -> list[int]:
    size = int(policy.decoder.head.weight.shape[0])
    return [(7919 * (number + 1)) % size for number in range(SPREAD)]
