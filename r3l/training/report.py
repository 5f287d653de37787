"""The metrics of an update, named as the columns of the table `updates`."""

from __future__ import annotations

import math
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from r3l.training.gradients import Measures
from r3l.training.job import Job
from r3l.training.optimiser import learning_rate
from r3l.training.scoring import OtherScores, starts
from r3l.training.shards import Survey

OF_A_STEP = (
    "loss",
    "loss_rl",
    "loss_sft",
    "loss_kl",
    "grad_norm",
    "entropy",
    "kl_behaviour",
    "clip_fraction",
    "ratio_mean",
    "learning_rate",
)


def report(
    job: Job, survey: Survey, sums: Measures, others: OtherScores, *, grad_norm: float, stepped: bool
) -> dict[str, Any]:
    """Return what the job knows of its row in `updates`; digest and path of the new snapshot are the caller's. Where no
    step was taken, what only a step measures is NaN, not 0."""
    unmeasured = {} if stepped else dict.fromkeys(OF_A_STEP, math.nan)
    bounds = next((others.bounds[search] for search in sorted(others.bounds)), None)
    return {
        "iteration": job.iteration,
        "step": job.step if stepped else job.step - 1,
        "stepped": stepped,
        "parent_policy": job.policy.digest,
        "loss": sums.loss,
        "loss_rl": sums.loss_rl,
        "loss_sft": sums.loss_sft,
        "loss_kl": sums.loss_kl,
        "grad_norm": grad_norm,
        "entropy": mean(sums.entropy_sum, sums.base_tokens),
        "kl_behaviour": mean(sums.kl_behaviour_sum, sums.behaviour_known),
        "kl_start": 0.0 if starts(job) else sums.kl_start_sum / sums.start_known if sums.start_known else None,
        "clip_fraction": mean(sums.clipped, sums.ratios),
        "ratio_mean": mean(sums.ratio_sum, sums.ratios, empty=1.0),
        "learning_rate": learning_rate(job.training, job.step),
        "rows": survey.rows,
        "groups": job.groups,
        "tokens_rl": sum(count for term, count in survey.tokens.items() if term != "sft"),
        "tokens_sft": survey.tokens["sft"],
        "tokens_sequences": survey.sequence_tokens,
        "tokens_computed": int(sums.tokens_computed),
        "scoring_passes": others.passes + (sums.scoring_tokens > 0),
        "reference_tokens": int(sums.reference_tokens),
        "kl_start_tokens": int(sums.kl_start_tokens),
        "masked_rows": int(sums.masked_rows),
        "clip_low": bounds.clip_low if bounds else None,
        "clip_high": bounds.clip_high if bounds else None,
    } | unmeasured


def mean(total: float, count: float, empty: float = 0.0) -> float:
    return total / count if count else empty


def forget_peak() -> None:
    """Begin to measure the peak of the resident memory anew: the process may have done other jobs. Only Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb(device: torch.device) -> float:
    """Return the peak resident memory of this process; on a GPU the peak of what was allocated there."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
