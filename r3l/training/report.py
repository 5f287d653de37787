"""The metrics of an update, named as the columns of the table `updates`."""

import math
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from r3l.training.gradients import Measures
from r3l.training.job import Job, UpdateResult
from r3l.training.optimiser import learning_rate
from r3l.training.scoring import OtherScores, starts
from r3l.training.shards import Count

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
    job: Job, count: Count, groups: int, sums: Measures, others: OtherScores, number: int, *, grad_norm: float
) -> dict[str, Any]:
    """Make what the job knows of a step's row in `updates`; digest and path of the new snapshot are the caller's.

    Args:
        count: what was read for the step.
        groups: what `groups` reductions were divided by.
        number: of the step in the job, 0-based; -1: no step was taken, and what only a step measures is NaN, not 0.
    """
    has_step = number >= 0
    nan_columns = {} if has_step else dict.fromkeys(OF_A_STEP, math.nan)
    is_start = starts(job) and number <= 0  # the KL to itself is 0, unseen
    bounds = next((others.bounds[search] for search in sorted(others.bounds)), None)
    return {
        "iteration": job.iteration,
        "step": job.step + number,
        "stepped": has_step,
        "parent_policy": job.policy.digest,
        "loss": sums.loss,
        "loss_rl": sums.loss_rl,
        "loss_sft": sums.loss_sft,
        "loss_kl": sums.loss_kl,
        "grad_norm": grad_norm,
        "entropy": mean(sums.entropy_sum, sums.base_tokens),
        "kl_behaviour": mean(sums.kl_behaviour_sum, sums.behaviour_known),
        "kl_start": 0.0 if is_start else sums.kl_start_sum / sums.start_known if sums.start_known else None,
        "clip_fraction": mean(sums.clipped, sums.ratios),
        "ratio_mean": mean(sums.ratio_sum, sums.ratios, empty=1.0),
        "learning_rate": learning_rate(job.training, job.step + max(number, 0)),
        "rows": count.rows,
        "groups": groups,
        "tokens_rl": sum(tokens for term, tokens in count.tokens.items() if term != "sft"),
        "tokens_sft": count.tokens["sft"],
        "tokens_sequences": count.sequence_tokens,
        "tokens_computed": int(sums.tokens_computed),
        "scoring_passes": (others.passes if number <= 0 else 0) + (sums.scoring_tokens > 0),
        "reference_tokens": int(sums.reference_tokens),
        "kl_start_tokens": int(sums.kl_start_tokens),
        "masked_rows": int(sums.masked_rows),
        "epoch": 0,
        "minibatch": 0,
        "drift_asked": None,
        "drift": None,
        "step_share": None,
        "drift_tokens": 0,
        "clip_low": bounds.clip_low if bounds else None,
        "clip_high": bounds.clip_high if bounds else None,
    } | nan_columns


def mean(total: float, count: float, empty: float = 0.0) -> float:
    return total / count if count else empty


def share_seconds(result: UpdateResult) -> None:
    """Make the seconds of the steps add up to those of the job: loading and writing go to the first one."""
    first, *later = result["steps"]
    first["seconds"] = result["seconds"] - sum(step["seconds"] for step in later)
    for step in result["steps"]:
        step["peak_memory_mb"] = result["peak_memory_mb"]


def forget_peak() -> None:
    """Begin to measure the peak of the resident memory anew: the process may have done other jobs. Only Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb(device: torch.device) -> float:
    """Measure the peak resident memory of this process, in MiB; on a GPU the peak of what was allocated there."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
