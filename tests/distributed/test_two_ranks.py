"""Two processes over gloo take the step of one process: with unequal numbers of groups and segments, full and LoRA."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from r3l.store.policies.snapshots import optimiser_digest, snapshot_digest
from r3l.store.tables.schemas import arrow_schema
from r3l.training.checkpoint import gather_whole
from r3l.training.job import Job
from r3l.training.parallel.ranks import Ranks
from r3l.training.shards import Group
from r3l.training.update import run_update
from tests.support.records import turn
from tests.support.update_world import group, relative_error, write_policy, write_rows

LORA = {"adapter": "lora", "lora_rank": 4, "lora_alpha": 8}
SHARDED = {"sharding": "fsdp2"}
CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"policy_settings": LORA},
    "sharded": {"training": SHARDED},
    "sharded-lora": {"policy_settings": LORA, "training": SHARDED},
}


def make_job(tmp_path: Path, name: str, out: str, **settings: Any) -> Job:
    """Three groups of unequal size, one with a KL to a reference: an uneven split over two ranks."""
    columns = {"objective": "clipped_ratio", "kl_coefficient": 0.1, "kl_estimator": "k3"}
    records = [*group(0, "g0", members=6), *group(1, "g1", members=2), *group(2, "g2", members=4, **columns)]
    start, reference = tmp_path / "start", tmp_path / "reference"
    if not start.exists():
        write_policy(start)
        write_policy(reference, seed=1)
    training = {"learning_rate": 1e-2, "device": "cpu", "micro_batch_tokens": 64, **settings.get("training", {})}
    return Job.model_validate(
        {
            "rows": [write_rows(tmp_path / "rows.parquet", records)],
            "groups": 3,
            "policy": {"path": str(start), "digest": "start"},
            "reference": str(reference),
            "out": str(tmp_path / f"{out}-{name}"),
            **settings,
            "training": training,
        }
    )


def run_ranks(tmp_path: Path, jobs: list[Job]) -> None:
    files = []
    for i, job in enumerate(jobs):
        files.append(str(tmp_path / f"job{i}.json"))
        Path(files[-1]).write_text(job.model_dump_json())
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            "tests/distributed/run_jobs.py", *files,
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def same_step(one: Path, two: Path) -> None:
    """The same losses, norm, canary and weights, but for the order of a sum."""
    a, b = (json.loads((folder / "update.json").read_text()) for folder in (one, two))
    for name in (
        "loss",
        "loss_kl",
        "grad_norm",
        "entropy",
        "kl_behaviour",
        "kl_start",
        "kl_start_tokens",
        "clip_low",
        "clip_high",
        "tokens_rl",
        "reference_tokens",
        "tokens_sequences",
        "rows",
    ):
        assert b[name] == (None if a[name] is None else pytest.approx(a[name], rel=1e-5)), name
    assert b["canary"]["logprobs"] == pytest.approx(a["canary"]["logprobs"], abs=1e-4)
    first, second = (load_file(folder / "optimizer" / "optimizer.safetensors") for folder in (one, two))
    assert first.keys() == second.keys()
    moments = [
        torch.cat([state[name].flatten() for name in sorted(first) if name.startswith("exp_avg/")])
        for state in (first, second)
    ]
    assert (
        relative_error(moments[1], moments[0]) <= 1e-6
    )  # a tenth of the clipped gradient: AdamW's step itself blows up its rounding
    file = next((one / "policy").glob("*.safetensors")).name
    weights = [load_file(folder / "policy" / file) for folder in (one, two)]
    assert {name: tensor.shape for name, tensor in weights[0].items()} == {
        name: tensor.shape for name, tensor in weights[1].items()
    }


@pytest.mark.slow
def test_two_ranks_take_the_step_of_one_and_each_number_of_them_the_same_bits_again(tmp_path: Path) -> None:
    outs = [(out, name) for out in ("two", "again") for name in CASES]
    run_ranks(tmp_path, [make_job(tmp_path, name, out, **CASES[name]) for out, name in outs])
    for name, case in CASES.items():
        for out in ("one", "one-again"):
            run_update(make_job(tmp_path, name, out, **case), Ranks(), lambda event, **fields: None)
        same_step(tmp_path / f"one-{name}", tmp_path / f"two-{name}")
        same_bits(tmp_path / f"one-{name}", tmp_path / f"one-again-{name}")
        same_bits(tmp_path / f"two-{name}", tmp_path / f"again-{name}")


def same_bits(one: Path, other: Path) -> None:
    """The same policy, optimiser's state and canary, bit for bit."""
    assert snapshot_digest(one / "policy") == snapshot_digest(other / "policy")
    assert optimiser_digest(one / "optimizer") == optimiser_digest(other / "optimizer")
    first, second = (json.loads((folder / "update.json").read_text()) for folder in (one, other))
    assert (first["canary"], first["loss"]) == (second["canary"], second["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "fsdp2"])
def test_two_ranks_take_all_steps_of_one_and_measure_the_same_drift(tmp_path: Path, sharding: str) -> None:
    """Three minibatches of one group each, so that a rank is idle in every step; the ratio is one rank's alone."""
    turns = [
        asdict(
            turn(f"g{group}/base={base}", number, context=[5 + group, 9 + number], reply=[7 + base, 11, 20 + number])
        )
        for group, base, number in product(range(3), range(3), range(2))
    ]
    pq.write_table(pa.Table.from_pylist(turns, schema=arrow_schema("turns")), tmp_path / "turns.parquet")
    training = {"epochs": 2, "minibatches": 3, "max_drift": 1e-3, "sharding": sharding}
    one, two = (
        make_job(tmp_path, sharding, out, training=training, turns=[str(tmp_path / "turns.parquet")])
        for out in ("one", "two")
    )
    run_ranks(tmp_path, [two])
    run_update(one, Ranks(), lambda event, **fields: None)
    steps = [json.loads((Path(job.out) / "update.json").read_text())["steps"] for job in (one, two)]
    assert len(steps[0]) == len(steps[1]) == 6
    for name in ("loss", "ratio_mean", "drift_asked", "drift", "step_share", "groups", "minibatch"):
        assert [step[name] for step in steps[1]] == pytest.approx([step[name] for step in steps[0]], rel=1e-3), name
    assert all(step["drift"] <= 1e-3 < step["drift_asked"] for step in steps[0])


def test_groups_are_split_by_cost() -> None:
    groups = [Group("a", cost=5), Group("b", cost=9), Group("c", cost=4), Group("d", cost=2)]
    shares = [[one.group_id for one in Ranks(rank, 2).share(groups)] for rank in (0, 1)]
    assert shares == [["b", "d"], ["a", "c"]]  # 9 | 5, 9 | 9, 11 | 9


def test_a_rank_that_does_not_write_keeps_nothing(tmp_path: Path) -> None:
    tensors = [("a", torch.ones(3)), ("b", torch.zeros(2, 2))]
    assert gather_whole(iter(tensors), keep=False) == {}
    kept = gather_whole(iter(tensors), keep=True, dtype=torch.bfloat16)
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in kept.items()} == {
        "a": (torch.bfloat16, (3,)),
        "b": (torch.bfloat16, (2, 2)),
    }
