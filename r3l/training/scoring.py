"""Log-probabilities by other policies: the behaviour policy of reused rows, and the reference where a KL is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from r3l.errors import TrainingError
from r3l.training.gradients import RowScores
from r3l.training.job import Job
from r3l.training.layouts import Layout, Limits
from r3l.training.policy import load_policy
from r3l.training.rows import Row
from r3l.training.shards import Survey

Floats = NDArray[np.float64]
Batches = Callable[[], Iterable[Sequence[Row]]]


@dataclass(slots=True)
class OtherScores:
    """By row id: log-probabilities [T] of the trained tokens by the behaviour and the reference policy."""

    old: dict[str, Floats] = field(default_factory=dict)
    reference: dict[str, Floats] = field(default_factory=dict)
    passes: int = 0
    reference_tokens: int = 0

    def of(self, row: Row, logp: Floats | None) -> RowScores:
        """A row's scores beside `logp`, those of the trained policy (None: its gradient does not depend on them)."""
        return RowScores(np.zeros(len(row.positions)) if logp is None else logp, self.old.get(row.row_id), self.reference.get(row.row_id))


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores rows with policies that are loaded one at a time and dropped again."""

    job: Job
    layout: Layout
    limits: Limits
    device: torch.device
    batches: Batches
    emit: Callable[..., None]

    def score(self, path: str, base_path: str | None, wanted: Callable[[Row], bool]) -> tuple[dict[str, Floats], int]:
        """(log-probabilities by row id, tokens computed) of the wanted rows."""
        policy = load_policy(path, base_path, self.job.policy_settings, dtype=self.job.training.dtype, device=self.device, trainable=False)
        found: dict[str, Floats] = {}
        tokens = 0
        for batch in self.batches():
            rows = [row for row in batch if wanted(row)]
            if rows:
                done = self.layout.score(policy.decoder, rows, self.limits)
                found |= {row.row_id: logp for row, logp in zip(rows, done.logps, strict=True)}
                tokens += done.tokens_computed
                self.emit("scored", rows=len(rows), scored_tokens=done.tokens_computed)
        return found, tokens


def sampled_by(digest: str, trained: str, row: Row) -> bool:
    """Whether a row's ratio is to the policy of this digest."""
    return row.needs_old(trained) and row.behaviour_policy == digest


def score_others(job: Job, found: Survey, layout: Layout, limits: Limits, device: torch.device, batches: Batches,
                 emit: Callable[..., None]) -> OtherScores:
    """One pass for each behaviour policy that a ratio needs, and one for the reference if any row has a KL coefficient.

    Raises:
        TrainingError: the job names no folder for one of them.
    """
    others, scorer = OtherScores(), Scorer(job, layout, limits, device, batches, emit)
    for digest in sorted(found.behaviours):
        if digest not in job.policies:
            raise TrainingError(f"behaviour policy {digest} sampled some rows with a ratio, but the job's `policies` has no folder for it; "
                                f"got {', '.join(job.policies) or 'none'}")
        others.old |= scorer.score(job.policies[digest], job.policy.base_path, partial(sampled_by, digest, job.policy.digest))[0]
        others.passes += 1
    if found.reference:
        if not job.reference:
            raise TrainingError("some rows have a KL coefficient, but the job names no reference policy; set `reference` to its folder")
        others.reference, others.reference_tokens = scorer.score(job.reference, job.policy.base_path, lambda row: row.kl_coefficient > 0)
        others.passes += 1
    return others
