"""The update job as it is really run: a process that reads parquet files and leaves a policy behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.update_world import group, record, write_policy, write_rows


def run_job(tmp_path: Path, records: list[dict[str, Any]], **settings: Any) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = tmp_path / "out"
    policy = tmp_path / "policy"
    if not policy.exists():
        write_policy(policy)
    job = {"rows": [write_rows(tmp_path / "rows.parquet", records)], "groups": 2, "policy": {"path": str(policy), "digest": "start"},
           "training": {"learning_rate": 1e-3, "device": "cpu"}, "out": str(out), "iteration": 4, "step": 5, **settings}
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = subprocess.run([sys.executable, "-m", "r3l.training", "--job", str(tmp_path / "job.json")], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}, check=False)
    return done, out


def expected_step(policy: Path, records: list[dict[str, Any]], groups: int, sft_tokens: int) -> tuple[float, float, dict[str, torch.Tensor]]:
    """Loss, gradient norm and weights after one step, written out with whole sequences and torch's own parts."""
    model = AutoModelForCausalLM.from_pretrained(policy).eval()
    total = torch.zeros(())
    for one in records:
        ids, weights = torch.tensor(one["token_ids"]), torch.tensor(one["weights"])
        logp = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        if one["objective"] == "cross_entropy":
            total = total - one["coefficient"] * (weights[1:] * logp).sum() / sft_tokens
        else:
            total = total - one["advantage"] * (weights[1:] * logp).sum() / groups
    total.backward()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return float(total.detach()), float(norm), {name: p.detach() for name, p in model.named_parameters()}


def test_the_job_takes_the_step_that_separate_sequences_would(tmp_path: Path) -> None:
    sft = record("g0/reflect=0", range(2, 20), [0.0] * 10 + [1.0] * 8, objective="cross_entropy", term="sft", reduction="tokens",
                 coefficient=0.5, role="reflect")
    records = [*group(0, "g0"), *group(1, "g1"), sft]
    done, out = run_job(tmp_path, records)
    assert done.returncode == 0, done.stderr
    update = json.loads((out / "update.json").read_text())
    loss, norm, weights = expected_step(tmp_path / "policy", records, groups=2, sft_tokens=8)
    assert update["loss"] == pytest.approx(loss, rel=1e-4)
    assert update["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert update["loss"] == pytest.approx(update["loss_rl"] + 0.5 * update["loss_sft"], rel=1e-6)
    assert (update["rows"], update["groups"], update["step"], update["iteration"]) == (9, 2, 5, 4)
    assert update["tokens_sft"] == 8
    assert update["tokens_computed"] < update["tokens_sequences"] == sum(len(one["token_ids"]) for one in records)
    assert (update["scoring_passes"], update["reference_tokens"], update["ratio_mean"]) == (0, 0, 1.0)
    saved = load_file(out / "policy" / "model.safetensors")
    for name, tensor in saved.items():
        assert torch.allclose(tensor, weights[name], atol=2e-5), name
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["start", "micro_batch", "finish"]


def test_the_new_policy_opens_as_it_is_and_the_canary_is_its_own(tmp_path: Path) -> None:
    done, out = run_job(tmp_path, group(0), canary_ids=[3, 9, 27, 20])
    assert done.returncode == 0, done.stderr
    canary = json.loads((out / "update.json").read_text())["canary"]
    model = AutoModelForCausalLM.from_pretrained(out / "policy").eval()
    logits = model(torch.tensor([canary["token_ids"]])).logits[0, :-1].log_softmax(-1)
    assert canary["logprobs"] == pytest.approx([float(logits[i, token]) for i, token in enumerate([9, 27, 20])], abs=1e-5)
    assert AutoTokenizer.from_pretrained(out / "policy").chat_template == AutoTokenizer.from_pretrained(tmp_path / "policy").chat_template
    assert not list(out.rglob("*.partial"))


def test_without_a_gradient_no_step_is_taken(tmp_path: Path) -> None:
    done, out = run_job(tmp_path, group(0, advantage=0.0))
    assert done.returncode == 0, done.stderr
    update = json.loads((out / "update.json").read_text())
    assert (update["stepped"], update["step"], update["grad_norm"], update["tokens_computed"]) == (False, 4, 0.0, 0)
    assert [event["event"] for event in update["events"]] == ["no_step"]
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "policy", out / "policy"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_job_that_can_not_run_says_why_in_one_line(tmp_path: Path) -> None:
    done, out = run_job(tmp_path, group(0), policy={"path": str(tmp_path / "nowhere"), "digest": "start"})
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        f"r3l.training: policy folder {tmp_path / 'nowhere'}: no config.json; expected a transformers folder"]
    assert not (out / "policy").exists()
