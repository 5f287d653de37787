"""Training rows: one sequence each, with a weight for every token.

token_ids = C0 + A0 + C1 + A1 + ...       (C = context, A = sampled reply)
weights   =  0 + w0 +  0 + w1 + ...       w_k = normaliser x mask_k, the same for all tokens of a reply
advantages=  0 + a0 +  0 + a1 + ...       a_k = A-hat of turn k, where turns have their own
logprobs  =  0 + l0 +  0 + l1 + ...       as the behaviour policy sampled them; NaN for a distilled trajectory's replies
                                          that were sampled behind the guidance, which its contexts no longer hold
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from r3l.config.methods.shared import MethodSettings
from r3l.credit.turns import response_weights
from r3l.methods.base import Objective, shared_turns
from r3l.records import Credit, Episode, Kind, Reflection, TrainingRow, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Segments:
    """K contexts and the replies sampled behind them; the first `mask_turn` replies carry no weight."""

    contexts_K: list[list[int]]
    replies_K: list[list[int]]
    logprobs_K: list[list[float]]
    mask_turn: int = 0

    @classmethod
    def of_turns(cls, turns: Sequence[Turn], mask_turn: int) -> Segments:
        return cls(
            [turn.context_ids for turn in turns],
            [turn.response_ids for turn in turns],
            [turn.response_logprobs for turn in turns],
            mask_turn,
        )

    @classmethod
    def of_reflection(cls, reflection: Reflection) -> Segments:
        return cls([reflection.context_ids], [reflection.response_ids], [reflection.response_logprobs])

    def lengths(self) -> list[int]:
        return [len(reply) for reply in self.replies_K]


def explore_row(settings: MethodSettings, objective: Objective, member: Episode, credit: Credit) -> TrainingRow:
    """Make the row of a group's member: all its turns, with weight from `credit.mask_turn` on."""
    segments = Segments.of_turns(without_guided_logprobs(member), credit.mask_turn)
    objective = with_off_policy_mask(settings, objective, member, credit)
    training_row = row(
        settings, objective, member.trajectory, credit.trajectory_id, segments, credit.advantage, credit.group_size
    )
    if credit.turn_advantages is None:
        return training_row
    return replace(training_row, advantages=over_replies(credit.turn_advantages, segments))


def over_replies(values_K: Sequence[float], segments: Segments) -> list[float]:
    """Spread each turn's value over every token of its reply, 0 over those of the contexts."""
    return [
        value
        for context, reply, own in zip(segments.contexts_K, segments.replies_K, values_K, strict=True)
        for value in [*[0.0] * len(context), *[own] * len(reply)]
    ]


def with_off_policy_mask(settings: MethodSettings, objective: Objective, member: Episode, credit: Credit) -> Objective:
    """Add what the off-policy mask needs to the objective, where it may mask the row: the threshold, and the mean
    log-probability with which the trained tokens were sampled. Those of a retry were sampled behind the guidance."""
    logprobs = [logprob for turn in member.turns if turn.turn >= credit.mask_turn for logprob in turn.response_logprobs]
    mean = math.fsum(logprobs) / len(logprobs) if logprobs else math.nan
    if settings.off_policy_delta == 0 or credit.advantage >= 0 or not math.isfinite(mean):
        return objective
    mask = {"delta": settings.off_policy_delta, "sampled_logprob": mean}
    return replace(objective, settings={**objective.settings, "off_policy": mask})


def without_guided_logprobs(member: Episode) -> list[Turn]:
    """Copy the turns; where a retry's replies were put behind other contexts, their log-probabilities there are not
    known (NaN)."""
    if member.trajectory.kind != Kind.DISTILLED:
        return member.turns
    prefix_turns = shared_turns(member.trajectory) or 0
    return [
        turn if turn.turn < prefix_turns else replace(turn, response_logprobs=[math.nan] * len(turn.response_ids))
        for turn in member.turns
    ]


def reflect_row(
    settings: MethodSettings, objective: Objective, reflection: Reflection, advantage: float, group_size: int
) -> TrainingRow:
    """Make a row of D_reflect: the reflection, behind what the reflector was shown. Its advantage is 1 if it is
    supervised."""
    objective = replace(objective, role="reflect")
    segments = Segments.of_reflection(reflection)
    return row(settings, objective, reflection, reflection.reflection_id, segments, advantage, group_size)


def retry_row(
    settings: MethodSettings,
    objective: Objective,
    retry: Episode,
    kept: Sequence[Turn],
    advantage: float,
    group_size: int,
) -> TrainingRow:
    """Make a row of D_retry: the turns kept from its parent, then its own behind the guidance; only its own are
    trained."""
    objective = replace(objective, role="retry")
    segments = Segments.of_turns([*kept, *retry.turns], mask_turn=len(kept))
    return row(settings, objective, retry.trajectory, retry.trajectory.trajectory_id, segments, advantage, group_size)


def row(
    settings: MethodSettings,
    objective: Objective,
    origin: Trajectory | Reflection,
    source_id: str,
    segments: Segments,
    advantage: float,
    group_size: int,
) -> TrainingRow:
    """Lay contexts and replies end to end, as one sequence."""
    if settings.sampler_ratio not in ("auto", "none") and objective.term == "rl":
        bounds = {"rule": settings.sampler_ratio, "low": settings.sampler_low, "high": settings.sampler_high}
        objective = replace(objective, settings={**objective.settings, "sampler": bounds})
    masks = response_weights(segments.lengths(), segments.mask_turn)
    trained_tokens = int(sum(mask.sum() for mask in masks))
    weight, reduction = normaliser(settings, objective.term, sum(segments.lengths()), trained_tokens, group_size)
    token_ids: list[int] = []
    weights: list[float] = []
    logprobs: list[float] = []
    for context, reply, reply_logprobs, mask in zip(
        segments.contexts_K, segments.replies_K, segments.logprobs_K, masks, strict=True
    ):
        token_ids += [*context, *reply]
        weights += [*[0.0] * len(context), *(weight * mask).tolist()]
        logprobs += [*[0.0] * len(context), *reply_logprobs]
    kl_coefficient = settings.kl_coefficient if objective.term == "rl" else 0.0
    is_distilled = isinstance(origin, Trajectory) and origin.kind == Kind.DISTILLED
    estimator = settings.kl_estimator_distilled if is_distilled else settings.kl_estimator
    return TrainingRow(
        row_id=f"{source_id}/row",
        group_id=origin.group_id,
        iteration=origin.iteration,
        source_id=source_id,
        role=objective.role,
        term=objective.term,
        objective=objective.name,
        objective_settings=json.dumps(dict(objective.settings), sort_keys=True),
        reduction=reduction,
        coefficient=objective.coefficient,
        kl_coefficient=kl_coefficient,
        kl_estimator=estimator if kl_coefficient else "none",
        advantage=advantage,
        behaviour_policy=origin.policy,
        token_ids=token_ids,
        weights=weights,
        logprobs=logprobs,
        trained_tokens=trained_tokens,
    )


def normaliser(settings: MethodSettings, term: str, sampled: int, trained: int, group_size: int) -> tuple[float, str]:
    """Choose the weight of one trained token, and the reduction over the batch that goes with it (setting
    `loss_normalisation`).

    trajectory: 1 / (|tau| G), |tau| = all sampled tokens, masked ones too; trajectory_unmasked: |tau| = those with
        weight;
    token: 1, divided by the term's tokens; constant: 1 / (loss_tokens G) (Dr. GRPO).
    Meta-task rows (paper, algorithm), `sft_reduction` = group: 1 / (|y| G), |y| = what is learned of the row, without
    the turns that a retry keeps from its parent.
    """
    if term == "sft":
        reduction = getattr(settings, "sft_reduction", "group")
        return (1.0 / (max(trained, 1) * group_size), "groups") if reduction == "group" else (1.0, reduction)
    if settings.loss_normalisation == "token":
        return 1.0, "tokens"
    if settings.loss_normalisation == "constant":
        return 1.0 / (settings.loss_tokens * group_size), "groups"
    length = sampled if settings.loss_normalisation == "trajectory" else trained
    return 1.0 / (max(length, 1) * group_size), "groups"
