"""An update: rows in, one or several optimiser steps, a new snapshot out. Gradients are summed over micro-batches of
whole groups."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from r3l.config.engines import TINY
from r3l.errors import TrainingError
from r3l.store.files.local import replace_text
from r3l.system.visible import first_line
from r3l.training.balance import Score
from r3l.training.canary import Canary
from r3l.training.checkpoint import (
    copy_optimiser,
    copy_policy,
    optimiser_tensors,
    policy_weights,
    refuse_other_state,
    save_optimiser,
    save_policy,
)
from r3l.training.gradients import Denominators, Floats, Measures, measure, row_gradient
from r3l.training.job import Job, UpdateEvent, UpdateResult
from r3l.training.parallel.ranks import Ranks
from r3l.training.policy import Policy, find_base, load_config, load_policy
from r3l.training.report import forget_peak, peak_memory_mb, report, share_seconds
from r3l.training.rows import UpdateRow
from r3l.training.scores import Scores
from r3l.training.scoring import OtherScores, score_others
from r3l.training.shards import Group, Survey, micro_batches, read_groups, survey
from r3l.training.stepping.minibatches import epochs, split
from r3l.training.stepping.steps import Plan, Steps, own_groups
from r3l.training.trie.exactness import choose_layout
from r3l.training.trie.layouts import Layout, Limits, TrieLayout

Emit = Callable[..., None]
SEGMENT_TOKENS = 2048  # with checkpoint_segments: tokens whose activations are held at once


@dataclass
class Update:
    """A job in progress. `emit(event, **fields)` reports its progress."""

    job: Job
    ranks: Ranks
    emit: Emit
    events: list[UpdateEvent] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = self.job.training
        self.device = choose_device(settings.device)
        self.layout: Layout
        self.scores = Scores(settings.scores, self.job.iteration)
        self.sharded = settings.sharding == "fsdp2" and self.ranks.size > 1
        self.limits = Limits(
            settings.micro_batch_tokens,
            settings.logits_chunk,
            recompute=settings.checkpoint_segments,
            segment_tokens=SEGMENT_TOKENS if settings.checkpoint_segments else 0,
        )

    def run(self) -> UpdateResult:
        """Take the steps and write the snapshot; the result is what `update.json` holds.

        Raises:
            TrainingError: rows, policies or optimiser state that are not as the job says, or a gradient that is not
                finite.
        """
        job = self.job
        if job.optimiser and job.optimiser_digest and self.ranks.leads:
            refuse_other_state(Path(job.optimiser), job.optimiser_digest)
        with self._timed("survey"):
            batch = survey(job.rows, job.policy.digest, job.training.overlap)
        with self._timed("load"):
            self._choose_layout()
        self.emit(
            "start", rows=batch.rows, groups=len(batch.groups), trie_tokens=sum(group.cost for group in batch.groups)
        )
        training, seed = job.training, f"{job.seed}/{job.iteration}"
        plan = list(epochs(split(batch, job.groups, training.minibatches, seed), training.epochs, seed))
        groups = own_groups(self.ranks, plan)
        with self._timed("scoring"):
            others = score_others(
                job, batch, self.layout, self.limits, self.device, groups, self.emit, several=len(plan) > 1
            )
        with self._timed("load"):
            policy = load_policy(
                job.policy.path,
                job.policy.base_path,
                job.policy_settings,
                dtype=training.dtype,
                device=self.device,
                seed=job.seed,
                sharded=self.sharded,
                segments=isinstance(self.layout, TrieLayout),
            )
        # threads cost more than they give on a model that small
        if sum(parameter.numel() for parameter in policy.model.parameters()) < TINY:
            torch.set_num_threads(1)
        canary = Canary(policy, batch.groups, job.policy_settings, job.canary_ids)
        rows = (
            self._steps(policy, plan, groups, batch, others, canary) if batch.groups else [self._no_step(batch, others)]
        )
        result = rows[-1] | {"canary": canary.result(), "events": self.events, "steps": rows}
        result["scores"] = self.scores.write(Path(job.out), self.ranks)
        return cast(
            UpdateResult, result | {"peak_memory_mb": peak_memory_mb(self.device), "seconds_by_part": self.seconds}
        )

    def _choose_layout(self) -> None:
        job = self.job
        self.layout, reason = choose_layout(
            job.training.layout, load_config(find_base(job.policy.path, job.policy.base_path)), self.device
        )
        if reason:
            self.events.append(
                {"event": "layout", "reason": reason, "detail": f"padded rows instead of the {job.training.layout}"}
            )

    def _steps(
        self, policy: Policy, plan: Plan, groups: list[Group], batch: Survey, others: OtherScores, canary: Canary
    ) -> list[dict[str, Any]]:
        """Take all steps, write what they come to, and give their rows of the table `updates`."""
        steps = Steps(
            self.job, self.ranks, policy, plan, groups, others, batch.searches,
            self.gradients, self._score_by(policy), self._timed, self.emit, self.events,
        )  # fmt: skip
        canary.look()  # every rank has the weights from here on
        steps.look()
        steps.take()
        with self._timed("save"):
            self._save(policy, steps)
        return steps.rows

    def _score_by(self, policy: Policy) -> Score:
        def score(rows: Sequence[UpdateRow]) -> tuple[list[Floats], int]:
            row_scores = self.layout.score(policy.decoder, rows, self.limits)
            return row_scores.logps, row_scores.tokens_computed

        return score

    def _save(self, policy: Policy, steps: Steps) -> None:
        dtype, out = self.job.policy_settings.dtype, Path(self.job.out)
        optimiser, named = steps.optimiser, steps.named
        weights = policy_weights(policy, dtype, self.ranks.leads)
        state = optimiser_tensors(optimiser, named, not policy.is_adapter and dtype != "float32", self.ranks.leads)
        teacher = steps.average.tensors(self.ranks.leads) if steps.average else {}
        if self.ranks.leads:
            save_policy(policy, weights, out / "policy")
            save_optimiser(optimiser, named, state, teacher, out / "optimizer")

    def gradients(
        self, policy: Policy, groups: list[Group], others: OtherScores, denominators: Denominators
    ) -> Measures:
        """Leave this rank's part of the gradient on the policy's parameters, a micro-batch at a time.

        Where memory runs out on any rank, all start again with half the limits. Raise `TrainingError` at the smallest
        ones.
        """
        while True:
            measures, failure = Measures(), ""
            policy.model.zero_grad(set_to_none=True)
            policy.decoder.begin()
            try:
                self._accumulate(policy, groups, others, denominators, measures)
            except (RuntimeError, MemoryError) as error:
                failure = out_of_memory(error)
                if not failure:
                    raise
            # a rank that ran out has part of a gradient: no rank may keep its own, or the sum mixes two passes
            if not self.ranks.any(bool(failure)):
                policy.decoder.finish()
                return measures
            smaller = self.limits.halved()
            if smaller == self.limits or self.sharded:  # gradients gathered by FSDP2 can't be taken back
                raise TrainingError(
                    f"out of memory, and the limits can't be lowered any more ({self.limits}): {failure}"
                )
            self.events.append({"event": "out_of_memory", "reason": failure, "detail": f"{self.limits} -> {smaller}"})
            self.emit("out_of_memory", reason=failure, limits=str(smaller))
            self.limits = smaller
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _accumulate(
        self, policy: Policy, groups: list[Group], others: OtherScores, denominators: Denominators, measures: Measures
    ) -> None:
        batches = micro_batches(groups, self.limits.micro_batch_tokens)
        for index, batch in enumerate(batches):
            start_time, before = time.perf_counter(), measures.loss
            rows = [others.bounded(row) for row in read_groups(batch)]
            tokens = self._micro_batch(policy, rows, others, denominators, measures)
            self.emit(
                "micro_batch",
                index=index,
                of=len(batches),
                rows=len(rows),
                tokens=tokens,
                loss=measures.loss - before,
                seconds=time.perf_counter() - start_time,
            )

    def _micro_batch(
        self, policy: Policy, rows: list[UpdateRow], others: OtherScores, denominators: Denominators, measures: Measures
    ) -> int:
        current = {row.row_id: others.current[row.row_id] for row in rows if row.row_id in others.current}
        # where a policy other than the present one is known, the ratio to it moves
        unscored_rows = [
            row
            for row in rows
            if row.row_id not in current and (row.row_id in others.old or row.needs_scoring(self.job.policy.digest))
        ]
        if unscored_rows:
            result = self.layout.score(policy.decoder, unscored_rows, self.limits)
            current |= {row.row_id: logp for row, logp in zip(unscored_rows, result.logps, strict=True)}
            measures.add(scoring_tokens=result.tokens_computed)
        # the gradient of each log-probability is known before the pass, so that one backward per segment is enough
        gradients = [row_gradient(row, others.of(row, current.get(row.row_id)), denominators.of(row)) for row in rows]
        result = self.layout.backward(policy.decoder, rows, gradients, self.limits)
        for row, logp, entropies in zip(rows, result.logps, result.entropies, strict=True):
            scores = others.of(row, logp)
            measure(row, scores, entropies, denominators.of(row), measures)
            self.scores.note(row, scores, entropies)
        measures.add(tokens_computed=result.tokens_computed)
        return result.tokens_computed

    def _no_step(self, batch: Survey, others: OtherScores) -> dict[str, Any]:
        """Write the policy as it is, and make the row that says so."""
        if self.ranks.leads:
            copy_policy(Path(self.job.policy.path), Path(self.job.out) / "policy")
            if self.job.optimiser:
                copy_optimiser(Path(self.job.optimiser), Path(self.job.out) / "optimizer")
        self.events.append({"event": "no_step", "reason": "no row has a gradient", "detail": ""})
        return report(self.job, batch, self.job.groups, Measures(), others, -1, grad_norm=0.0)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        self.emit("part", part=part)
        start_time = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start_time


def run_update(job: Job, ranks: Ranks, emit: Emit, import_seconds: float = 0.0) -> UpdateResult:
    """Run a job and write its `update.json`, last of all. Raise `TrainingError`."""
    start_time = time.perf_counter()
    forget_peak()
    Path(job.out).mkdir(parents=True, exist_ok=True)
    update = Update(job, ranks, emit, seconds={"import": import_seconds})
    result = update.run()
    result["seconds"] = import_seconds + time.perf_counter() - start_time
    share_seconds(result)
    if ranks.leads:
        replace_text(Path(job.out) / "update.json", json.dumps(result, indent=1))
    return result


def choose_device(setting: str) -> torch.device:
    """Choose the device; auto: a GPU if there is one. Raise `TrainingError` if cuda is asked for and missing."""
    if setting == "cuda" and not torch.cuda.is_available():
        raise TrainingError("training.device is cuda, but torch sees no GPU; set it to auto or cpu")
    return torch.device("cuda" if setting != "cpu" and torch.cuda.is_available() else "cpu")


def out_of_memory(error: Exception) -> str:
    """Extract the first line of an out-of-memory error; empty for another one."""
    text = first_line(error)
    ran_out = (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or "can't allocate memory" in text
        or "out of memory" in text
    )
    return text if ran_out else ""
