"""The optimiser steps of one update, on a policy that is loaded once.

A loss with a ratio takes it to the policy before the first step. What that policy sampled is scored once, before it
moves; with a single step that is needless, since every ratio is 1.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from r3l.errors import TrainingError
from r3l.training.balance import Score, balance
from r3l.training.checkpoint import load_optimiser
from r3l.training.gradients import Denominators, Measures
from r3l.training.job import Job, UpdateEvent
from r3l.training.optimiser import learning_rate, make_optimiser
from r3l.training.parallel.fsdp import whole
from r3l.training.parallel.ranks import Ranks
from r3l.training.policy import Policy
from r3l.training.report import report
from r3l.training.rows import Search
from r3l.training.scoring import OtherScores
from r3l.training.shards import Group, micro_batches, read_groups
from r3l.training.stepping.average import Average
from r3l.training.stepping.drift import Drift, Taken, bound_step, choose, sampled_bases
from r3l.training.stepping.minibatches import Minibatch

Gradients = Callable[[Policy, list[Group], OtherScores, Denominators], Measures]
Plan = Sequence[tuple[int, Minibatch]]  # the epoch and the minibatch of each step


def own_groups(ranks: Ranks, plan: Plan) -> list[Group]:
    """List this rank's groups, its share of each minibatch: all ranks take every step, and each scores what it
    reads."""
    return [group for epoch, part in plan if epoch == 0 for group in ranks.share(part.groups)]


@dataclass
class Steps:
    """The steps of a plan, one after another."""

    job: Job
    ranks: Ranks
    policy: Policy
    plan: Plan
    groups: Sequence[Group]  # this rank's
    others: OtherScores
    searches: Collection[Search]
    gradients: Gradients  # leaves this rank's part of the gradient of some groups on the parameters
    score: Score
    timed: Callable[[str], AbstractContextManager[None]]
    emit: Callable[..., None]
    events: list[UpdateEvent]
    drift: Drift | None = None
    drift_so_far: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)  # of the table `updates`

    def __post_init__(self) -> None:
        self.named: dict[str, nn.Parameter] = dict(self.policy.trainable())
        self.optimiser = make_optimiser(self.named, self.job.training, self.job.step)
        if self.job.optimiser:
            load_optimiser(self.optimiser, self.named, Path(self.job.optimiser))
        # after the masters are there: an average that begins does so as the policy that is trained
        rate = self.job.training.teacher_average
        self.average = Average(self.policy, self.job.optimiser) if rate else None

    def look(self) -> None:
        """Score what is held against the policy before the first step, where it is asked for."""
        if self.job.training.max_drift is not None:
            with self.timed("drift"):
                self._look_at_neutral_tokens(self.job.training.max_drift)
        if self.others.taught or len(self.plan) > 1:
            with self.timed("scoring"):
                if self.others.taught:
                    self._score_behind_teachers()
                if len(self.plan) > 1:
                    self._score_own_rows()

    def take(self) -> None:
        start_time = time.perf_counter()
        before = self._measure_moments() if self._begins_with_moments else Measures()
        for number, (epoch, minibatch) in enumerate(self.plan):
            # the step before has changed the weights: sharded ones are gathered again
            if number:
                self.policy.decoder.refresh()
            if len(self.plan) > 1:
                self.emit("step", number=number, of=len(self.plan))
            measures, norm = self._gradient(minibatch, number)
            measures.add(tokens_computed=before.tokens_computed, scoring_tokens=before.scoring_tokens)
            shortened_step = self._step(number)
            row = report(
                self.job, minibatch.count, minibatch.denominators.groups, measures, self.others, number, grad_norm=norm
            )
            row |= {"epoch": epoch, "minibatch": minibatch.number, "seconds": time.perf_counter() - start_time}
            if shortened_step and self.drift:
                row |= {
                    "drift_asked": shortened_step.asked,
                    "drift": shortened_step.drift,
                    "step_share": shortened_step.share,
                }
                row["drift_tokens"] = self.drift.tokens
            self.rows.append(row)
            self.others.stepped()
            start_time, before = time.perf_counter(), Measures()
        if self.average:
            self.average.move(self.job.training.teacher_average)
        self.policy.decoder.release()

    @property
    def _begins_with_moments(self) -> bool:
        return self.job.training.initial_moments == "measured" and not self.job.optimiser

    def _measure_moments(self) -> Measures:
        """Have AdamW see the gradient of each group before it moves, as steps of length 0; gives what that took."""
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = 0.0
        cost = Measures()
        for group in (group for epoch, part in self.plan if epoch == 0 for group in part.groups):
            alone = Minibatch(0, [group], Denominators(1, group.count.tokens), group.count)
            measures, _ = self._gradient(alone, 0)
            self.optimiser.step()
            cost.add(tokens_computed=measures.tokens_computed, scoring_tokens=measures.scoring_tokens)
        return cost

    def _look_at_neutral_tokens(self, bound: float) -> None:
        attempts, instead = choose(
            list(sampled_bases(self.job.turns, self.job.rows)),
            f"{self.job.seed}/{self.job.iteration}",
            int(self.policy.decoder.head.weight.shape[0]),
        )
        if not attempts:
            reason = f"no base with reply tokens: training.max_drift={bound:g} does not bound this update"
            self.events.append({"event": "drift_unmeasured", "reason": reason, "detail": ""})
            return
        if instead:
            detail = f"measured on {len(attempts)} bases that it pushes least"
            self.events.append({"event": "no_neutral_tokens", "reason": instead, "detail": detail})
        training = self.job.training
        is_sharded = training.sharding != "none" and self.ranks.size > 1
        self.drift = Drift(self.policy, self.ranks, attempts, training.logits_chunk, is_sharded)
        self.drift.look()

    def _score_behind_teachers(self) -> None:
        """Score the replies of the rows that have a teacher behind its context. The teacher is the policy before the
        first step, or the average of it and those before it."""
        with self.average.in_place() if self.average else nullcontext():
            for batch in micro_batches(self.groups, self.job.training.micro_batch_tokens):
                rows = [row for row in read_groups(batch) if row.teacher]
                if rows:
                    logps, tokens = self.score([row.behind_teacher for row in rows])
                    self.others.teacher |= {row.row_id: logp for row, logp in zip(rows, logps, strict=True)}
                    self.others.scoring_tokens += tokens
        self.others.passes += 1

    def _score_own_rows(self) -> None:
        """Score the rows whose ratio is to the policy that is trained; in the first step they are its own scores."""
        own: dict[str, Any] = {}
        for batch in micro_batches(self.groups, self.job.training.micro_batch_tokens):
            rows = [row for row in read_groups(batch) if row.has_anchor and row.row_id not in self.others.old]
            if rows:
                logps, tokens = self.score(rows)
                own |= {row.row_id: logp for row, logp in zip(rows, logps, strict=True)}
                self.others.scoring_tokens += tokens
        self.others.old |= own
        self.others.current |= own

    def _gradient(self, minibatch: Minibatch, number: int) -> tuple[Measures, float]:
        """Leave the clipped gradient on the parameters; gives the measures of all ranks and the norm before
        clipping."""
        groups, denominators = self.ranks.share(minibatch.groups), minibatch.denominators
        if self.searches:
            with self.timed("scoring"):
                tokens = self.job.training.micro_batch_tokens
                self.others.scoring_tokens += balance(
                    groups, self.searches, self.others, denominators, self.ranks, self.score, tokens
                )
        self.optimiser.zero_grad()  # sharded weights too: gathered, the model does not show them
        with self.timed("passes"):
            measures = self.gradients(self.policy, groups, self.others, denominators)
            self.ranks.sum_gradients(self.named.values())
        measures.add(**self.others.taken_tokens())
        norm = float(whole(nn.utils.clip_grad_norm_(self.named.values(), self.job.training.max_grad_norm)))
        if not torch.isfinite(torch.tensor(norm)):
            raise TrainingError(
                f"the gradient's norm is {norm} in step {number + 1} of {len(self.plan)}; no policy was written: look "
                f"at the weights and log-probabilities of iteration {self.job.iteration}'s training rows"
            )
        return self.ranks.sum_measures(measures), norm

    def _step(self, number: int) -> Taken | None:
        """Take the step, shortened where it drifts too far.

        After step k of K the drift may be k/K of the bound, so that no minibatch takes what belongs to those after it.
        Adam's moments and its count of steps stay as a whole step leaves them.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.job.training, self.job.step + number)
        bound = self.job.training.max_drift
        if self.drift is None or bound is None:
            self.optimiser.step()
            return None
        drift = self.drift
        # a copy of every trainable weight: an adapter's is small, and a step that drifts is undone exactly
        before = [parameter.detach().clone() for parameter in self.named.values()]
        self.optimiser.step()
        at = 1.0

        def drift_at(share: float) -> float:
            nonlocal at
            # moved from where the last trial left it, not from the start: one copy is enough
            if share != at:
                self._move(before, share / at)
                at = share
            return self.drift_so_far if share == 0 else drift.measure()

        with self.timed("drift"):
            shortened_step = bound_step(drift_at, bound * (number + 1) / len(self.plan), self.drift_so_far)
        if shortened_step.share == 0:
            reason = f"training.max_drift={bound:g} does not hold at any length that was tried"
            self.events.append({"event": "step_taken_back", "reason": reason, "detail": f"step {number + 1}"})
        self.drift_so_far = shortened_step.drift
        return shortened_step

    @torch.no_grad()
    def _move(self, before: Sequence[Tensor], factor: float) -> None:
        """Put every parameter at a factor of its way from where it was before the step."""
        for parameter, was in zip(self.named.values(), before, strict=True):
            parameter.copy_(was if factor == 0 else was + factor * (parameter - was))
