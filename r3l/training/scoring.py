"""Log-probabilities by other policies: the behaviour policy of reused rows, the reference where a KL is asked for, and
the starting policy's on a few rows, for the metric `kl_start`."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from r3l.errors import TrainingError
from r3l.losses import Bounds
from r3l.training.gradients import RowScores
from r3l.training.job import Job
from r3l.training.policy import load_policy
from r3l.training.rows import Search, UpdateRow
from r3l.training.shards import Group, Survey, micro_batches, read_groups
from r3l.training.trie.layouts import Layout, Limits

Floats = NDArray[np.float64]


@dataclass(slots=True)
class OtherScores:
    """By row id: log-probabilities [T] of the trained tokens by the behaviour, the reference and the starting
    policy, and by the trained one behind each row's teacher."""

    old: dict[str, Floats] = field(default_factory=dict)
    reference: dict[str, Floats] = field(default_factory=dict)
    start: dict[str, Floats] = field(default_factory=dict)
    teacher: dict[str, Floats] = field(default_factory=dict)
    current: dict[str, Floats] = field(default_factory=dict)  # by the trained policy itself, before the first gradient
    bounds: dict[Search, Bounds] = field(default_factory=dict)  # clip bounds that were chosen for the whole batch
    taught: bool = False  # whether any rank's row has a teacher
    passes: int = 0
    reference_tokens: int = 0
    start_tokens: int = 0
    scoring_tokens: int = 0  # through the trained policy, to choose clip bounds or for ratios to it

    def bounded(self, row: UpdateRow) -> UpdateRow:
        """Put the clip bounds that were chosen for the row into its settings, where there are any."""
        bounds = self.bounds.get(row.search) if row.loss.balances else None
        return row if bounds is None else replace(row, settings=bounds._asdict())

    def stepped(self) -> None:
        """Forget what the policy before a step has scored, and the bounds that were chosen by it."""
        self.current.clear()
        self.bounds.clear()

    def taken_tokens(self) -> dict[str, int]:
        """Count the tokens that were scored since the last call, as measures, and begin again at 0."""
        tokens = {
            "reference_tokens": self.reference_tokens,
            "kl_start_tokens": self.start_tokens,
            "scoring_tokens": self.scoring_tokens,
        }
        self.reference_tokens = self.start_tokens = self.scoring_tokens = 0
        return tokens

    def of(self, row: UpdateRow, logp: Floats | None) -> RowScores:
        """Collect a row's scores beside `logp`, those of the trained policy (None: its gradient does not depend on
        them)."""
        return RowScores(
            np.zeros(len(row.positions)) if logp is None else logp,
            self.old.get(row.row_id),
            self.reference.get(row.row_id),
            self.start.get(row.row_id),
            self.teacher.get(row.row_id),
        )


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores rows of some groups with policies that are loaded one at a time and dropped again."""

    job: Job
    layout: Layout
    limits: Limits
    device: torch.device
    groups: Sequence[Group]
    emit: Callable[..., None]

    def score(
        self,
        path: str,
        base_path: str | None,
        needs_score: Callable[[UpdateRow], bool],
        within: Collection[str] | None = None,
    ) -> tuple[dict[str, Floats], int]:
        """Score the rows for which `needs_score`, of all groups or of those `within`; gives log-probabilities by row
        id, and tokens computed."""
        policy = load_policy(
            path,
            base_path,
            self.job.policy_settings,
            dtype=self.job.training.dtype,
            device=self.device,
            trainable=False,
        )
        scores: dict[str, Floats] = {}
        tokens = 0
        groups = [group for group in self.groups if within is None or group.group_id in within]
        for batch in micro_batches(groups, self.limits.micro_batch_tokens):
            rows = [row for row in read_groups(batch) if needs_score(row)]
            if rows:
                batch_scores = self.layout.score(policy.decoder, rows, self.limits)
                scores |= {row.row_id: logp for row, logp in zip(rows, batch_scores.logps, strict=True)}
                tokens += batch_scores.tokens_computed
                self.emit("scored", rows=len(rows), scored_tokens=batch_scores.tokens_computed)
        return scores, tokens


def sampled_by(digest: str, job: Job, row: UpdateRow) -> bool:
    """Tell whether a row's ratio is to the policy of this digest."""
    return row.needs_old(job.policy.digest, job.training.overlap) and row.behaviour_policy == digest


def starts(job: Job) -> bool:
    """Tell whether the policy that is trained is the starting policy itself: its KL to it is 0, unseen."""
    return job.reference == job.policy.path


def draw_rows(job: Job, survey: Survey) -> list[str]:
    """Draw the bases' rows that the metric `kl_start` is estimated on, the same ones in every process. None where the
    policy is sharded: a model that does not fit on one device is not loaded there for a metric's sake."""
    if job.training.sharding != "none":
        return []
    by_chance = sorted(survey.bases, key=lambda row_id: sha256(f"{job.seed}/{row_id}".encode()).digest())
    return by_chance[: job.training.kl_start_rows]


def score_others(
    job: Job,
    survey: Survey,
    layout: Layout,
    limits: Limits,
    device: torch.device,
    groups: Sequence[Group],
    emit: Callable[..., None],
    several: bool = False,
) -> OtherScores:
    """Score rows by other policies: one pass for each behaviour policy that a ratio needs, one for the reference if any
    row has a KL coefficient, and where none has, a few rows by the starting policy.

    Args:
        several: the update takes more than one step: from the second on, the policy is not the starting one any more.

    Raises:
        TrainingError: the job names no folder for one of them.
    """
    others, scorer = OtherScores(taught=survey.taught), Scorer(job, layout, limits, device, groups, emit)
    # one policy at a time is in memory; sorted, so that all ranks load the same one together
    for digest in sorted(survey.behaviours):
        if digest not in job.policies:
            raise TrainingError(
                f"behaviour policy {digest} sampled some rows with a ratio, but the job's `policies` has no folder "
                f"for it; got {', '.join(job.policies) or 'none'}"
            )
        others.old |= scorer.score(job.policies[digest], job.policy.base_path, partial(sampled_by, digest, job))[0]
        others.passes += 1
    if survey.reference:
        if not job.reference:
            raise TrainingError(
                "some rows have a KL coefficient, but the job names no reference policy; set `reference` to its folder"
            )
        others.reference, others.reference_tokens = scorer.score(
            job.reference, job.policy.base_path, lambda row: row.kl_coefficient > 0
        )
        others.passes += 1
        # the reference is the starting policy: the metric needs no pass of its own
        others.start = others.reference
    elif job.reference and (several or not starts(job)) and (rows := set(draw_rows(job, survey))):
        within = {survey.bases[row_id] for row_id in rows}
        if any(group.group_id in within for group in groups):
            others.start, others.start_tokens = scorer.score(
                job.reference, job.policy.base_path, lambda row: row.row_id in rows, within
            )
    return others
