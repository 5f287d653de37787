"""From log-probabilities to dL/dlogp of every trained token, row by row. The trie itself knows no losses.

L = sum over rows of (coefficient x loss + kl_coefficient x KL) / D,   D = groups, the term's trained tokens, or 1
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from r3l.errors import TrainingError
from r3l.losses import RowLoss, kl_penalty, off_policy, sampler_weights, taught_advantage
from r3l.losses.objectives import Advantage
from r3l.training.rows import UpdateRow

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Denominators:
    """The divisor of a term's sums: means over groups or over trained tokens, or nothing for a plain sum."""

    groups: int
    tokens: Counter[str]

    def of(self, row: UpdateRow) -> float:
        choices = {"groups": self.groups, "tokens": self.tokens[row.term], "sum": 1}
        if row.reduction not in choices:
            raise TrainingError(
                f"training row {row.row_id}: reduction {row.reduction!r} is unknown; expected one of "
                f"{', '.join(choices)}"
            )
        return float(max(1, choices[row.reduction]))


@dataclass(slots=True)
class Measures:
    """Sums that become the metrics of an update: those of two ranks or micro-batches add."""

    loss: float = 0.0
    loss_rl: float = 0.0
    loss_sft: float = 0.0
    loss_kl: float = 0.0
    ratios: float = 0.0
    clipped: float = 0.0
    ratio_sum: float = 0.0
    kl_behaviour_sum: float = 0.0
    base_tokens: float = 0.0  # trained reply tokens of bases: what entropy, KL and ratios are taken on
    kl_start_sum: float = 0.0
    behaviour_known: float = 0.0  # those of them whose behaviour log-probability the engine told
    start_known: float = 0.0  # those of them that the starting policy scored
    entropy_sum: float = 0.0
    tokens_computed: float = 0.0
    scoring_tokens: float = 0.0  # in extra passes of the trained policy itself
    reference_tokens: float = 0.0
    kl_start_tokens: float = 0.0  # through the starting policy for the metric alone
    masked_rows: float = 0.0  # rows that the off-policy mask left out

    def add(self, **values: float) -> None:
        for name, value in values.items():
            setattr(self, name, getattr(self, name) + float(value))

    def merge(self, other: Measures) -> None:
        self.add(**asdict(other))


@dataclass(frozen=True, slots=True)
class RowScores:
    """Log-probabilities of a row's trained tokens [T] by the trained, the behaviour, the reference and the starting
    policy."""

    logp: Floats
    old: Floats | None = None  # None: the row has no ratio, or the trained policy itself sampled it
    reference: Floats | None = None
    start: Floats | None = None  # for the metric alone
    teacher: Floats | None = None  # by the policy before the update, behind the teacher's context


def row_gradient(row: UpdateRow, scores: RowScores, denominator: float) -> Floats:
    """Differentiate one row's loss and KL: dL/dlogp [T], by autograd on its log-probabilities."""
    logp = torch.from_numpy(scores.logp).clone().requires_grad_()
    loss, kl = _losses(row, logp, scores)
    total = (row.coefficient * loss.value + row.kl_coefficient * kl) / denominator
    return torch.autograd.grad(total, logp)[0].numpy()


def measure(row: UpdateRow, scores: RowScores, entropies: Floats, denominator: float, measures: Measures) -> None:
    """Add a row's losses to the sums; where it is a base's, its entropies [T], ratios and k3 estimates of the KL to the
    behaviour and to the starting policy too. Distilled and meta-task rows stay out of the latter: not every method has
    them."""
    with torch.no_grad():
        logp = torch.from_numpy(scores.logp)
        loss, kl = _losses(row, logp, scores)
    part, kl_part = float(loss.value) / denominator, float(kl) / denominator
    measures.add(masked_rows=is_masked(row, logp))
    measures.add(loss=row.coefficient * part + row.kl_coefficient * kl_part, loss_kl=kl_part)
    measures.add(**({"loss_sft": part} if row.term == "sft" else {"loss_rl": row.coefficient * part}))
    if not row.of_a_base:
        return
    has_behaviour = np.isfinite(row.behaviour_logprobs)
    measures.add(
        ratios=loss.ratios,
        clipped=loss.clipped,
        ratio_sum=loss.ratio_sum,
        entropy_sum=entropies.sum(),
        base_tokens=len(entropies),
        kl_behaviour_sum=k3_sum((row.behaviour_logprobs - scores.logp)[has_behaviour]),
        behaviour_known=has_behaviour.sum(),
    )
    if scores.start is not None:
        measures.add(kl_start_sum=k3_sum(scores.start - scores.logp), start_known=len(scores.start))


def k3_sum(drift: Floats) -> float:
    """Sum the k3 estimates exp(d) - d - 1 of KL(pi || other) over tokens, d = log other - log pi."""
    return float((np.exp(np.clip(drift, -30, 30)) - drift - 1).sum())


def is_masked(row: UpdateRow, logp: torch.Tensor) -> bool:
    """Tell whether the off-policy mask leaves the row out; its KL term stays."""
    return bool(row.off_policy) and off_policy(logp, torch.from_numpy(row.weights), row.advantage, **row.off_policy)


def advantage_of(row: UpdateRow, logp: torch.Tensor, old: torch.Tensor, teacher: Floats | None) -> Advantage:
    """Choose the advantage of the row or of each of its tokens [T], as its teacher makes it where it has one.

    A gap is that of the policy as it is, which it closes; weights are fixed before the first step.
    """
    advantage = row.advantage if row.advantages is None else torch.from_numpy(row.advantages)
    if not row.teacher or teacher is None:
        return advantage
    arguments = {name: row.teacher[name] for name in ("rule", "mix", "low", "high")}
    own = logp if arguments["rule"] == "gap" else old
    taught = taught_advantage(advantage, own, torch.from_numpy(teacher), **arguments)
    return torch.where(torch.from_numpy(row.weighed), taught, torch.as_tensor(advantage, dtype=taught.dtype))


def sampler_factors(row: UpdateRow, anchor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute (what each token is weighted with for the ratio of trainer to engine, whether that was cut); `anchor`:
    the policy's log-probabilities before the update."""
    return sampler_weights(
        anchor, torch.from_numpy(row.behaviour_logprobs), torch.from_numpy(row.weights), **row.sampler
    )


def _losses(row: UpdateRow, logp: torch.Tensor, scores: RowScores) -> tuple[RowLoss, torch.Tensor]:
    weights = torch.from_numpy(row.weights)
    # without old log-probabilities the trained policy itself sampled the row: the ratio is 1, but its gradient is not 0
    old = logp.detach() if scores.old is None else torch.from_numpy(scores.old)
    try:
        advantage = advantage_of(row, logp.detach(), old, scores.teacher)
        sampled = weights * sampler_factors(row, old)[0] if row.sampler else weights
        loss = row.loss.loss(logp, old, advantage, sampled, **row.settings)
    except TypeError as error:
        raise TrainingError(
            f"training row {row.row_id}: objective_settings {dict(row.settings)} do not fit {row.objective}: {error}"
        ) from error
    if is_masked(row, logp.detach()):
        # times 0 and not a constant, so that autograd still finds a path from the total to `logp`
        loss = replace(loss, value=loss.value * 0)
    kl = logp.new_zeros(())
    if row.kl_coefficient > 0:
        if scores.reference is None:
            raise TrainingError(
                f"training row {row.row_id}: it has a KL coefficient, but the job names no reference policy"
            )
        kl = kl_penalty(logp, torch.from_numpy(scores.reference), weights, row.kl_estimator)
    return loss, kl
