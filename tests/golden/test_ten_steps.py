"""Ten update jobs in a row on the CPU, against the numbers of a recorded run: what should change nothing changes
nothing.

Recorded by `python -m tests.golden.test_ten_steps`. Tolerance: 2e-4 relative, for other CPUs and library versions sum
in another order and ten AdamW steps blow that up; on the machine that recorded it the numbers repeat exactly.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from r3l.training.job import Job
from r3l.training.parallel.ranks import Ranks
from r3l.training.update import run_update
from tests.support.update_world import group, record, write_policy, write_rows

GOLDEN = Path(__file__).with_name("ten_steps.json")
KEPT = ("loss", "loss_rl", "loss_sft", "loss_kl", "grad_norm", "entropy", "kl_behaviour", "clip_fraction", "ratio_mean")
STEPS = 10


def batch(step: int) -> list[dict[str, Any]]:
    """A policy gradient group, a clipped group with KL whose rows the starting policy sampled, a GSPO group, an SFT
    row."""
    old = {"behaviour_policy": "start", "kl_coefficient": 0.05, "kl_estimator": "k3"}
    return [
        *group(step % 3, "g0"),
        *group(10 + step % 2, "g1", objective="clipped_ratio", **old),
        *group(20, "g2", objective="sequence_ratio", behaviour_policy="start"),
        record(
            "sft", range(3, 30), [0.0] * 12 + [1.0] * 15, group_id="g0", objective="cross_entropy", term="sft",
            reduction="tokens", coefficient=0.5,
        ),
    ]  # fmt: skip


def ten_steps(folder: Path) -> list[dict[str, float]]:
    start = policy = write_policy(folder / "start")
    optimiser, curve = None, []
    for step in range(1, STEPS + 1):
        out = folder / f"step{step}"
        run_update(
            Job.model_validate(
                {
                    "rows": [write_rows(folder / f"rows{step}.parquet", batch(step))], "groups": 3, "out": str(out),
                    "step": step, "policy": {"path": str(policy), "digest": f"policy {step}"},
                    "policies": {"start": str(start)}, "reference": str(start), "optimiser": optimiser,
                    "training": {"learning_rate": 3e-3, "schedule": "warmup", "warmup_steps": 3, "device": "cpu"},
                }
            ),
            Ranks(),
            lambda event, **fields: None,
        )  # fmt: skip
        update = json.loads((out / "update.json").read_text())
        curve.append({name: update[name] for name in KEPT})
        policy, optimiser = out / "policy", str(out / "optimizer")
    return curve


def test_the_curve_is_the_recorded_one(tmp_path: Path) -> None:
    curve, golden = ten_steps(tmp_path), json.loads(GOLDEN.read_text())
    assert len(curve) == len(golden) == STEPS
    for step, (got, expected) in enumerate(zip(curve, golden, strict=True), 1):
        assert got == pytest.approx(expected, rel=2e-4, abs=1e-7), f"step {step}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.write_text(json.dumps(ten_steps(Path(folder)), indent=1) + "\n")
    sys.stdout.write(GOLDEN.read_text())
