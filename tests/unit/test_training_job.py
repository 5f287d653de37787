"""The update job as it is really run: a process that reads parquet files and leaves a policy behind."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from r3l.config.sections import PolicySettings
from r3l.errors import TrainingError
from r3l.training.__main__ import run_job
from r3l.training.canary import Canary
from r3l.training.checkpoint import written_whole
from r3l.training.job import Job
from r3l.training.parallel.ranks import Ranks
from r3l.training.policy import DTYPES, load_policy
from r3l.training.rows import UpdateRow
from r3l.training.scoring import draw_rows
from r3l.training.shards import survey
from r3l.training.update import run_update
from tests.support.update_world import group, record, write_policy, write_rows


def job_of(tmp_path: Path, records: list[dict[str, Any]], **settings: Any) -> Job:
    policy = tmp_path / "policy"
    if not policy.exists():
        write_policy(policy)
    return Job.model_validate(
        {
            "rows": [write_rows(tmp_path / "rows.parquet", records)],
            "groups": 2,
            "policy": {"path": str(policy), "digest": "start"},
            "training": {"learning_rate": 1e-3, "device": "cpu"},
            "out": str(tmp_path / "out"),
            "iteration": 4,
            "step": 5,
            **settings,
        }
    )


def run_here(job: Job) -> tuple[dict[str, Any], Path]:
    run_update(job, Ranks(), lambda event, **fields: None)
    return json.loads((Path(job.out) / "update.json").read_text()), Path(job.out)


def expected_step(
    policy: Path, records: list[dict[str, Any]], groups: int, sft_tokens: int
) -> tuple[float, float, dict[str, torch.Tensor]]:
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


def test_the_job_takes_the_step_that_separate_sequences_would(tmp_path, capsys):
    about = {"objective": "cross_entropy", "term": "sft", "reduction": "tokens", "coefficient": 0.5, "role": "reflect"}
    sft = record("g0/reflect=0", range(2, 20), [0.0] * 10 + [1.0] * 8, **about)
    records = [*group(0, "g0"), *group(1, "g1"), sft]
    job = job_of(tmp_path, records)
    file, out = tmp_path / "job.json", Path(job.out)
    file.write_text(job.model_dump_json())
    capsys.readouterr()  # what making the policy said
    assert run_job(file, Ranks) == 0
    printed = capsys.readouterr().out
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
    events = [json.loads(line) for line in printed.splitlines()]
    assert [event.get("part", event["event"]) for event in events] == [
        "survey", "load", "start", "scoring", "load", "passes", "micro_batch", "save", "finish",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_new_policy_opens_as_it_is_and_the_canary_is_its_own(tmp_path: Path, dtype: str) -> None:
    """In bfloat16 too: scored in float32 with the weights that an engine holds, so without the rounding of the update's
    passes."""
    settings = {
        "training": {"learning_rate": 1e-3, "device": "cpu", "dtype": dtype},
        "policy_settings": {"dtype": dtype},
    }
    update, out = run_here(job_of(tmp_path, group(0), canary_ids=[3, 9, 27, 20], **settings))
    canary = update["canary"]
    for folder, said in ((tmp_path / "policy", canary["before"]), (out / "policy", canary["logprobs"])):
        held = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval().float()
        logp = held(torch.tensor([canary["token_ids"]])).logits.detach()[0, :-1].log_softmax(-1)
        assert said == pytest.approx([float(logp[i, token]) for i, token in enumerate([9, 27, 20])], abs=1e-5)
    assert canary["before"] != canary["logprobs"]
    assert (
        AutoTokenizer.from_pretrained(out / "policy").chat_template
        == AutoTokenizer.from_pretrained(tmp_path / "policy").chat_template
    )
    assert not list(out.rglob("*.partial"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_look_at_the_canary_leaves_the_policy_as_it_was(tmp_path: Path, dtype: str) -> None:
    settings = PolicySettings(adapter="lora", lora_rank=4, dtype="bfloat16")
    policy = load_policy(
        str(write_policy(tmp_path / "policy")), None, settings, dtype=dtype, device=torch.device("cpu")
    )
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    canary = Canary(policy, [], settings, [3, 9, 27, 20])
    canary.look()
    after = policy.model.state_dict()
    assert all(
        after[name].dtype == tensor.dtype and torch.equal(after[name], tensor) for name, tensor in before.items()
    )
    assert policy.decoder.dtype == DTYPES[dtype]
    assert canary.result()["logprobs"] == canary.before


def test_a_canary_of_its_own_choosing_is_the_end_of_a_trained_row(tmp_path: Path) -> None:
    records = group(0)
    canary = run_here(job_of(tmp_path, records, policy_settings={"context_tokens": 64}))[0]["canary"]
    row = next(row for row in map(UpdateRow.read, records) if row.has_gradient)
    assert canary["token_ids"] == row.token_ids[-32:].tolist()
    assert len(canary["logprobs"]) == len(canary["before"]) == len(canary["token_ids"]) - 1


def test_without_a_gradient_no_step_is_taken(tmp_path: Path) -> None:
    update, out = run_here(job_of(tmp_path, group(0, advantage=0.0)))
    assert (update["stepped"], update["step"], update["tokens_computed"]) == (False, 4, 0)
    assert all(
        math.isnan(update[name]) for name in ("loss", "grad_norm", "entropy", "learning_rate")
    )  # not 0: not measured
    assert [event["event"] for event in update["events"]] == ["no_step"]
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "policy", out / "policy"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_old_and_reference_log_probabilities_come_from_their_own_policies(tmp_path: Path) -> None:
    """Rows that an older policy sampled: the ratio is to that policy as the trainer scores it; the reference is a third
    one."""
    older, reference = write_policy(tmp_path / "older", seed=1), write_policy(tmp_path / "reference", seed=2)
    write_policy(tmp_path / "policy")
    models = {
        name: AutoModelForCausalLM.from_pretrained(tmp_path / name).eval() for name in ("policy", "older", "reference")
    }
    columns = {"objective": "clipped_ratio", "kl_coefficient": 0.05, "kl_estimator": "k3"}
    records = [*group(0, "g0", behaviour_policy="older", **columns), *group(1, "g1", **columns)]
    update, _ = run_here(job_of(tmp_path, records, policies={"older": str(older)}, reference=str(reference)))
    loss = kl_sum = 0.0
    ratios, clipped = [], 0
    for one in records:
        ids, w = torch.tensor(one["token_ids"]), torch.tensor(one["weights"])[1:].double()
        with torch.no_grad():
            logp, old, ref = (
                models[name](ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0].double()
                for name in ("policy", one["behaviour_policy"].replace("start", "policy"), "reference")
            )
        ratio, a = (logp - old).exp(), one["advantage"]
        plain, bounded = ratio * a, ratio.clamp(0.8, 1.28) * a
        kl = (ref - logp).exp() - (ref - logp) - 1
        loss += float(-(w * torch.minimum(plain, bounded)).sum() + one["kl_coefficient"] * (w * kl).sum()) / 2
        kl_sum += float((w * kl).sum()) / 2
        if "/base=" in one["source_id"]:  # metrics are taken on the bases' replies alone
            ratios += ratio[w != 0].tolist()
            clipped += int(((bounded < plain) & (w != 0)).sum())
    assert update["loss"] == pytest.approx(loss, rel=1e-4)
    assert update["loss_kl"] == pytest.approx(kl_sum, rel=1e-4)
    assert update["ratio_mean"] == pytest.approx(sum(ratios) / len(ratios), rel=1e-5)
    assert update["clip_fraction"] == pytest.approx(clipped / len(ratios)) != 0
    assert update["scoring_passes"] == 3  # the older policy, the reference, and the trained policy for its KL
    assert update["reference_tokens"] == update["tokens_computed"]


def k3_to_start(folder: Path, records: list[dict[str, Any]]) -> float:
    """mean of exp(d) - d - 1, d = log start - log pi, over the trained tokens of bases."""
    policy, start = (AutoModelForCausalLM.from_pretrained(folder / name).eval() for name in ("policy", "start"))
    found = []
    for one in (one for one in records if "/base=" in one["source_id"]):
        ids = torch.tensor(one["token_ids"])
        with torch.no_grad():
            pi, other = (
                model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0].double()
                for model in (policy, start)
            )
        found += ((other - pi).exp() - (other - pi) - 1)[torch.tensor(one["weights"])[1:] != 0].tolist()
    return sum(found) / len(found)


def test_the_kl_to_the_starting_policy_is_seen_on_a_few_rows_and_is_no_reference_pass(tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start", seed=3)
    records = [*group(0, "g0"), *group(1, "g1")]
    figures = {}
    for count in (0, 3, 8):  # there are four bases
        job = job_of(tmp_path, records, reference=str(start), training={"device": "cpu", "kl_start_rows": count})
        figures[count], _ = run_here(job)
        seen = [one for one in records if one["row_id"] in draw_rows(job, survey(job.rows, "start"))]
        assert len(seen) == min(count, 4)
        assert all("/base=" in one["row_id"] for one in seen)
        assert figures[count]["kl_start"] == (pytest.approx(k3_to_start(tmp_path, seen), rel=1e-4) if seen else None)
        assert (figures[count]["reference_tokens"], figures[count]["scoring_passes"]) == (0, 0)
    none, few, all_ = (figures[count]["kl_start_tokens"] for count in (0, 3, 8))
    sharded, _ = run_here(
        job_of(tmp_path, records, reference=str(start), training={"device": "cpu", "sharding": "fsdp2"})
    )
    assert (sharded["kl_start"], sharded["kl_start_tokens"]) == (None, 0)
    assert none == 0 < few < all_ < figures[8]["tokens_computed"]
    assert figures[0]["loss"] == figures[3]["loss"] == figures[8]["loss"]


def test_where_the_loss_has_a_kl_its_reference_gives_the_metric_and_at_the_start_it_is_zero_unseen(tmp_path):
    start = write_policy(tmp_path / "start", seed=3)
    records = group(0, kl_coefficient=0.05, kl_estimator="k3")
    update, _ = run_here(job_of(tmp_path, records, reference=str(start)))
    assert update["kl_start"] == pytest.approx(k3_to_start(tmp_path, records), rel=1e-4) != 0
    assert update["kl_start_tokens"] == 0 < update["reference_tokens"]
    first, _ = run_here(job_of(tmp_path, group(0), reference=str(tmp_path / "policy")))
    assert (first["kl_start"], first["kl_start_tokens"], first["reference_tokens"]) == (0.0, 0, 0)


def test_entropy_kl_and_ratios_are_taken_on_the_replies_of_bases(tmp_path: Path) -> None:
    """Distilled rows, a refinement and a meta-task row change none of them: methods without such rows are compared by
    them."""
    start = write_policy(tmp_path / "start", seed=3)
    records = group(0, "g0", objective="clipped_ratio", kl_coefficient=0.05, kl_estimator="k3")
    bases = [one for one in records if "/base=" in one["row_id"]]
    reflected = record(
        "g0/base=0/reflection=0", range(2, 20), [0.0] * 10 + [1.0] * 8, objective="cross_entropy", term="sft",
        role="reflect",
    )  # fmt: skip
    refined = record(
        "g0/base=0/distilled=2", range(3, 20), [0.0] * 10 + [0.1] * 7, role="refinement", objective="shaped_ratio"
    )
    update, _ = run_here(job_of(tmp_path, [*records, reflected, refined], reference=str(start)))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "policy").eval()
    entropies: list[float] = []
    behaviour: list[float] = []
    for one in bases:
        ids, trained = torch.tensor(one["token_ids"]), torch.tensor(one["weights"])[1:] != 0
        with torch.no_grad():
            log_p = model(ids[None]).logits[0, :-1].double().log_softmax(-1)
        entropies += (-(log_p.exp() * log_p).sum(-1))[trained].tolist()
        drift = -1.0 - log_p.gather(1, ids[1:, None])[:, 0][trained]  # the rows' behaviour log-probabilities are -1
        behaviour += (drift.exp() - drift - 1).tolist()
    assert update["entropy"] == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)
    assert update["kl_behaviour"] == pytest.approx(sum(behaviour) / len(behaviour), rel=1e-5)
    assert update["kl_start"] == pytest.approx(k3_to_start(tmp_path, records), rel=1e-4)


def test_a_missing_behaviour_policy_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="behaviour policy abc sampled some rows with a ratio"):
        run_here(job_of(tmp_path, group(0, objective="clipped_ratio", behaviour_policy="abc")))


def test_reading_a_job_loads_no_torch_and_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"rows": [], "groups": -1, "policy": {"path": "p"}, "out": "o", "epochs": 3}')
    code = (
        "import sys\nfrom r3l.errors import TrainingError\nfrom r3l.training.job import read_job\n"
        f"try:\n    read_job({str(tmp_path / 'job.json')!r})\nexcept TrainingError as error:\n    print(error)\n"
        "print([name for name in ('torch', 'transformers', 'prefect') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[-1] == "[]"
    for expected in (
        "groups: Input should be greater than or equal to 0",
        "policy.digest: Field required",
        "epochs: Extra inputs",
    ):
        assert expected in said[0]


@pytest.mark.slow  # a process that loads torch
def test_a_job_that_is_stopped_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    job = job_of(tmp_path, group(0))
    file = tmp_path / "job.json"
    file.write_text(job.model_dump_json())
    with subprocess.Popen(
        [sys.executable, "-m", "r3l.training", "--job", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())},
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) | {"time": 0} == {"event": "part", "time": 0, "part": "survey"}
        process.terminate()
    assert process.returncode == -signal.SIGTERM
    assert not [name for name in ("policy", "optimizer", "update.json") if (Path(job.out) / name).exists()]


def test_a_folder_that_fails_halfway_is_not_there(tmp_path: Path) -> None:
    def fail() -> None:
        with written_whole(tmp_path / "policy") as partial:
            (partial / "model.safetensors").write_bytes(b"half")
            raise OSError("disk is full")

    with pytest.raises(OSError, match="disk is full"):
        fail()
    assert not (tmp_path / "policy").exists()


def test_a_whole_folder_takes_its_name_by_a_rename(tmp_path: Path) -> None:
    """A copy would be there in part for a while. A leftover of an earlier try gives way."""
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "old").write_bytes(b"old")
    with written_whole(tmp_path / "policy") as partial:
        (partial / "model.safetensors").write_bytes(b"whole")
        written = (partial.stat().st_ino, (partial / "model.safetensors").stat().st_ino)
    kept = tmp_path / "policy"
    assert (kept.stat().st_ino, (kept / "model.safetensors").stat().st_ino) == written
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert [path.name for path in kept.iterdir()] == ["model.safetensors"]


def test_a_job_that_can_not_run_says_why_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = job_of(tmp_path, group(0), policy={"path": str(tmp_path / "nowhere"), "digest": "start"})
    (tmp_path / "job.json").write_text(job.model_dump_json())
    capsys.readouterr()  # what making the policy said
    assert run_job(tmp_path / "job.json", Ranks) == 1
    assert capsys.readouterr().err.strip().splitlines() == [
        f"r3l.training: policy folder {tmp_path / 'nowhere'}: no config.json; expected a transformers folder"
    ]
    assert not (Path(job.out) / "policy").exists()
