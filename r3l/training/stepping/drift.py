"""The drift of an update: how far a step moves what the objective is silent on, and steps that are shortened by it.

Neutral tokens are reply tokens of the batch's bases, which every method samples, that no loss pushes: turns before a
pivot, and attempts without credit (a KL penalty may act on them; it pulls towards the start). A step changes them by
side effect alone. The drift is the mean over them of

    KL(pi_before || pi_stepped) = sum_v pi_before(v) (log pi_before(v) - log pi_stepped(v))

exactly, over the whole vocabulary: pi_before is scored when the update begins. With one update per batch that policy
sampled the tokens; with sync_interval above 1 it is the one that the updates before have left.

Shapes: N neutral tokens of one attempt, V vocabulary, H hidden width.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow.dataset as ds
import torch
from numpy.typing import NDArray
from torch import Tensor

from r3l.errors import TrainingError
from r3l.training.parallel.ranks import Ranks
from r3l.training.policy import Policy
from r3l.training.shards import read_rows
from r3l.training.stepping.minibatches import place

ATTEMPTS = 12  # bases that are scored
SEQUENCE_TOKENS = 8192  # that go through the model at most, the first attempt excepted
NEUTRAL_TOKENS = 2048  # that are measured at most
NUMBERS = 1 << 26  # probabilities that are held at most
MEASUREMENTS = 10  # of one step; after that many it is taken back
AIM = 0.95  # a shortened step aims at this part of the room: another measurement is dearer than the rest of it


class Neutral(NamedTuple):
    """One attempt: its ids up to the last neutral token, and the positions of these, N of them."""

    token_ids: NDArray[np.int64]
    positions: NDArray[np.int64]


class Taken(NamedTuple):
    """A step as it was taken: drift at its full length, drift where it ended, share of its length."""

    asked: float
    drift: float
    share: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """A base's ids, and of its reply tokens: positions, and how strongly the loss pushes each (0: it is neutral)."""

    trajectory_id: str
    token_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    pushes: NDArray[np.float64]


def choose(attempts: Sequence[Sampled], seed: str, vocabulary: int) -> tuple[list[Neutral], str]:
    """Choose what the drift is measured on, alike in every process; the second value says why it is not neutral
    tokens.

    Where no reply token is neutral, all those of the attempts with the least push stand in: what they move by is wanted
    in part, so that the bound is stricter.
    """
    by_chance = sorted(attempts, key=lambda one: place(seed, one.trajectory_id))
    silent = [(one, one.positions[one.pushes == 0]) for one in by_chance if (one.pushes == 0).any()]
    instead = ""
    if not silent:
        by_push = sorted((one for one in by_chance if len(one.pushes)), key=lambda one: float(one.pushes.mean()))
        silent = [(one, one.positions) for one in by_push[:ATTEMPTS]]
        instead = "the loss pushes every reply token of every base"
    # the [N, V] distributions before the step stay in memory until the step is taken
    most = max(1, min(NEUTRAL_TOKENS, NUMBERS // vocabulary) // ATTEMPTS)
    measured_attempts: list[Neutral] = []
    length = 0
    for one, positions in silent[:ATTEMPTS]:
        # spread over the attempt, since its turns differ
        spread = np.unique(np.linspace(0, len(positions) - 1, min(most, len(positions))).astype(np.int64))
        neutral = Neutral(one.token_ids[: positions[spread[-1]] + 1], positions[spread])
        length += len(neutral.token_ids)
        if measured_attempts and length > SEQUENCE_TOKENS:
            break
        measured_attempts.append(neutral)
    return measured_attempts, instead


def sampled_bases(turns: Sequence[str], rows: Sequence[str]) -> Iterator[Sampled]:
    """Yield the bases of some files of turns, each with what files of training rows push it by."""
    pushes: dict[str, dict[int, float]] = defaultdict(dict)
    for row in read_rows(rows):
        if row.of_a_base and row.has_gradient:
            credit = row.advantage if row.advantages is None else row.advantages
            force = np.abs(row.coefficient * row.weights * (credit if row.loss.uses_advantage else 1.0))
            pushes[row.source_id] |= dict(zip(row.positions.tolist(), force.tolist(), strict=True))
    for trajectory_id, replies in _replies(turns).items():
        ids: list[NDArray[np.int64]] = []
        positions: list[NDArray[np.int64]] = []
        length = 0
        # turns are laid end to end, so that a position here is the row's position in `training_rows`
        for _, context, reply in sorted(replies, key=lambda one: one[0]):
            positions.append(length + len(context) + np.arange(len(reply)))
            ids += [context, reply]
            length += len(context) + len(reply)
        where = np.concatenate(positions)
        where = where[where > 0]  # no token before it predicts the first one
        push_at = pushes[trajectory_id]
        force = np.array([push_at.get(position, 0.0) for position in where.tolist()])
        yield Sampled(trajectory_id, np.concatenate(ids), where, force)


def _replies(files: Sequence[str]) -> dict[str, list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]]:
    """Read the context and reply ids of each attempt's turns. Raise `TrainingError` for files that are no turns."""
    turns_by_attempt: dict[str, list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = defaultdict(list)
    for file in files:
        try:
            table = ds.dataset(file).to_table(columns=["trajectory_id", "turn", "context_ids", "response_ids"])
        except (OSError, ValueError) as error:
            raise TrainingError(f"{file}: {error}; expected a parquet file of turns") from error
        for batch in table.to_batches():
            for trajectory_id, turn, context, reply in zip(*batch.columns, strict=True):
                ids = (np.asarray(one.values.to_numpy(zero_copy_only=False), np.int64) for one in (context, reply))
                turns_by_attempt[trajectory_id.as_py()].append((turn.as_py(), *ids))
    return turns_by_attempt


class Drift:
    """Measured by `measure` against the policy that `look` saw, alike in every process: each scores its part of the
    attempts. Weights and products are float32, for rounding in bfloat16 is as large as a step; with FSDP2 they are
    those of the passes, and every process scores all."""

    def __init__(self, policy: Policy, ranks: Ranks, attempts: Sequence[Neutral], chunk: int, sharded: bool) -> None:
        self.policy, self.ranks, self.chunk, self.sharded = policy, ranks, chunk, sharded
        self.tokens = sum(len(one.positions) for one in attempts)
        self.mine = attempts if sharded else attempts[ranks.rank :: ranks.size]
        self.before: list[Tensor] = []  # log-probabilities, [N, V] each

    def look(self) -> None:
        self.before = list(self._logprobs())

    def measure(self) -> float:
        """Measure the mean KL per token, in nats."""
        self.policy.decoder.refresh()
        sums = torch.zeros((), dtype=torch.float64)
        for before_NV, after_NV in zip(self.before, self._logprobs(), strict=True):
            sums += (before_NV.exp() * (before_NV - after_NV)).sum(dtype=torch.float64).cpu()
        whole = sums if self.sharded else self.ranks.sum(sums)
        mean = float(whole) / self.tokens
        return max(mean, 0.0) if math.isfinite(mean) else math.inf

    def _logprobs(self) -> Iterator[Tensor]:
        decoder = self.policy.decoder
        with torch.no_grad(), decoder.in_float32(torch.float32):
            for one in self.mine:
                ids = torch.from_numpy(one.token_ids).to(decoder.device)
                hidden_LH, _ = decoder.forward(ids[:-1], 0, [])
                hidden_NH = hidden_LH[torch.from_numpy(one.positions - 1).to(decoder.device)]
                weight = decoder.head.weight.to(hidden_NH.dtype)
                logits = [
                    torch.nn.functional.linear(part, weight, decoder.head.bias).float()
                    for part in hidden_NH.split(self.chunk)
                ]
                yield torch.cat([part.log_softmax(-1) for part in logits])


def bound_step(drift_at: Callable[[float], float], allowed: float, before: float) -> Taken:
    """Shorten a step along its line until the drift is within what is allowed, as TRPO does.

    Along the line the drift grows with the square of the length, from what the steps before have left. That is near the
    truth for short steps alone, so it is measured again; what never holds is taken back.

    Args:
        drift_at: puts the policy at a share of the step, and measures there.
        before: the drift before the step.
    """
    share = 1.0
    drift = full_drift = drift_at(share)
    for _ in range(MEASUREMENTS):
        if drift <= allowed:
            return Taken(full_drift, drift, share)
        # the drift is quadratic in the length: solve for the share that uses AIM of the room, then measure again
        room, step_drift = allowed - before, drift - before
        share *= math.sqrt(AIM * room / step_drift) if math.isfinite(step_drift) and room > 0 else 0.1
        drift = drift_at(share)
    # no length that was tried holds: the policy goes back to where it was before the step
    drift_at(0.0)
    return Taken(full_drift, before, 0.0)
