"""A run that is stopped and resumed takes the same steps, bit for bit; so does one whose memory ran out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from r3l.errors import TrainingError
from r3l.store.policies.snapshots import optimiser_digest
from r3l.training.job import Job
from r3l.training.parallel.ranks import Ranks
from r3l.training.trie.depth_first import DepthFirst
from r3l.training.update import run_update
from tests.support.update_world import group, write_policy, write_rows


def step(
    tmp_path: Path, policy: Path, number: int, optimiser: Path | None = None, name: str = "", **settings: Any
) -> Path:
    """One step on rows that depend on its number."""
    out = tmp_path / f"{name}step{number}"
    records = [one for i in range(3) for one in group(10 * number + i, f"g{i}")]
    snapshot = {"path": str(policy), "digest": f"d{number}", "base_path": settings.pop("base_path", None)}
    job = Job.model_validate(
        {
            "rows": [write_rows(tmp_path / f"rows{number}.parquet", records)], "groups": 3, "out": str(out),
            "step": number, "policy": snapshot, "optimiser": str(optimiser) if optimiser else None,
            "policy_settings": settings.pop("policy_settings", {}),
            "training": {"learning_rate": 1e-2, "device": "cpu", **settings},
        }
    )  # fmt: skip
    run_update(job, Ranks(), lambda event, **fields: None)
    return out


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(next(iter(sorted((folder / "policy").glob("*.safetensors")))))


def in_one_process(policy: Path, tmp_path: Path, steps: int) -> dict[str, torch.Tensor]:
    """The undisturbed run: one model and one optimiser kept in memory over all steps."""
    from transformers import AutoModelForCausalLM

    from r3l.training.gradients import Denominators
    from r3l.training.optimiser import make_optimiser
    from r3l.training.policy import Policy
    from r3l.training.scoring import OtherScores
    from r3l.training.shards import survey
    from r3l.training.trie.decoder import Decoder
    from r3l.training.trie.layouts import TrieLayout
    from r3l.training.update import Update

    model = AutoModelForCausalLM.from_pretrained(policy).eval()
    optimiser = None
    for number in range(1, steps + 1):
        job = Job.model_validate(
            {
                "rows": [str(tmp_path / f"rows{number}.parquet")],
                "groups": 3,
                "policy": {"path": "-", "digest": f"d{number}"},
                "out": "-",
                "training": {"learning_rate": 1e-2, "device": "cpu"},
            }
        )
        found = survey(job.rows, job.policy.digest)
        optimiser = optimiser or make_optimiser(dict(model.named_parameters()), job.training, number)
        update = Update(job, Ranks(), lambda event, **fields: None)
        update.layout = TrieLayout()
        update.gradients(
            Policy(model, Decoder(model), False, []), found.groups, OtherScores(), Denominators(3, found.tokens)
        )
        torch.nn.utils.clip_grad_norm_(model.parameters(), job.training.max_grad_norm)
        optimiser.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def test_resumed_steps_equal_the_undisturbed_ones(tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start")
    folder, optimiser = start, None
    for number in (1, 2, 3):
        out = step(tmp_path, folder, number, optimiser)
        folder, optimiser = out / "policy", out / "optimizer"
    undisturbed = in_one_process(start, tmp_path, 3)
    for name, tensor in weights(out).items():
        assert torch.equal(tensor, undisturbed[name]), name


def test_a_policy_written_in_bfloat16_goes_on_from_float32_masters(tmp_path: Path) -> None:
    """At a learning rate below bfloat16's resolution the written weights stand still, the masters don't."""
    start = write_policy(tmp_path / "start")
    narrow = {"policy_settings": {"dtype": "bfloat16"}, "learning_rate": 1e-6}
    first = step(tmp_path, start, 1, **narrow)
    second = step(tmp_path, first / "policy", 2, first / "optimizer", **narrow)
    assert {tensor.dtype for tensor in weights(second).values()} == {torch.bfloat16}
    masters = [load_file(out / "optimizer" / "optimizer.safetensors") for out in (first, second)]
    name = "master/model.layers.0.mlp.up_proj.weight"
    moved = (masters[1][name] - masters[0][name]).abs()
    assert 0 < float(moved.max()) <= 2e-6
    wide = [step(tmp_path, start, 1, name="wide", learning_rate=1e-6)]
    wide.append(step(tmp_path, wide[0] / "policy", 2, wide[0] / "optimizer", name="wide", learning_rate=1e-6))
    assert torch.equal(weights(wide[1])["model.layers.0.mlp.up_proj.weight"], masters[1][name])


def test_an_optimiser_state_of_another_policy_is_refused(tmp_path: Path) -> None:
    first = step(tmp_path, write_policy(tmp_path / "start"), 1)
    with pytest.raises(TrainingError, match=r"is of another policy: \d+ parameters differ"):
        step(tmp_path, write_policy(tmp_path / "other", "qwen3"), 2, first / "optimizer")


def test_out_of_memory_halves_the_limits_and_changes_nothing_else(tmp_path, monkeypatch):
    start = write_policy(tmp_path / "start")
    expected = step(tmp_path, start, 1)
    true_backward, failures = DepthFirst.backward, [torch.OutOfMemoryError("out of memory, tried to allocate 2 GiB")]

    def failing(self: DepthFirst, *arguments: Any) -> Any:
        scores = true_backward(self, *arguments)
        if failures:  # after a gradient was added: it must not be counted twice
            raise failures.pop()
        return scores

    monkeypatch.setattr(DepthFirst, "backward", failing)
    out = step(tmp_path, start, 1, name="again")
    events = json.loads((out / "update.json").read_text())["events"]
    assert [(one["event"], one["reason"]) for one in events] == [
        ("out_of_memory", "out of memory, tried to allocate 2 GiB")
    ]
    for name, tensor in weights(out).items():
        assert torch.allclose(tensor, weights(expected)[name], atol=1e-4), name


def test_warm_up_rises_and_stays(tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start")
    rates = [
        json.loads((step(tmp_path, start, number, schedule="warmup", warmup_steps=4) / "update.json").read_text())[
            "learning_rate"
        ]
        for number in (1, 4, 9)
    ]
    assert rates == pytest.approx([0.0025, 0.01, 0.01])


def test_lora_trains_the_adapter_alone_and_resumes(tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start")
    lora = {"policy_settings": {"adapter": "lora", "lora_rank": 4, "lora_alpha": 8}}
    first = step(tmp_path, start, 1, **lora)
    assert sorted(path.name for path in (first / "policy").iterdir() if "token" not in path.name) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "chat_template.jinja",
    ]
    second = step(tmp_path, first / "policy", 2, first / "optimizer", base_path=str(start), **lora)
    again = step(tmp_path, first / "policy", 2, first / "optimizer", base_path=str(start), name="again", **lora)
    one, two, same = weights(first), weights(second), weights(again)
    assert all(torch.equal(two[name], same[name]) for name in two)
    assert max(float((one[name] - two[name]).abs().max()) for name in one) == pytest.approx(
        0.01, rel=0.3
    )  # Adam's step is near lr


@pytest.mark.parametrize("rows", [True, False])
def test_another_state_than_the_job_names_is_neither_loaded_nor_copied(tmp_path: Path, rows: bool) -> None:
    """Also where no row has a gradient, and the state would only be handed on."""
    first = step(tmp_path, write_policy(tmp_path / "start"), 1)
    state, changed = first / "optimizer", first / "optimizer" / "optimizer.safetensors"
    digest = optimiser_digest(state)
    content = changed.read_bytes()
    records = group(1) if rows else []
    for spoiled, refused in ((content, False), (content[:-1] + bytes([content[-1] ^ 1]), True)):
        changed.write_bytes(spoiled)
        job = Job.model_validate(
            {
                "rows": [write_rows(tmp_path / "rows.parquet", records)], "groups": 1, "out": str(tmp_path / "out"),
                "step": 2, "policy": {"path": str(first / "policy"), "digest": "d"},
                "policies": {"start": str(tmp_path / "start")}, "optimiser": str(state), "optimiser_digest": digest,
                "training": {"device": "cpu"},
            }
        )  # fmt: skip
        if refused:
            with pytest.raises(
                TrainingError, match=rf"optimizer: holds [0-9a-f]{{16}}, expected {digest}; take the update"
            ):
                run_update(job, Ranks(), lambda event, **fields: None)
        else:
            run_update(job, Ranks(), lambda event, **fields: None)
