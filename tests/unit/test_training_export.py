"""An exported adapter is an ordinary model that says what base and adapter said together."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from r3l.config import compose
from r3l.engines.base import PolicySnapshot
from r3l.engines.embedded.loading import load_model
from r3l.errors import ConfigError, EngineError, TrainingError
from r3l.judge.steps import strangers
from r3l.pipeline.preflight import check_adapter
from r3l.store.policies.snapshots import snapshot_digest
from r3l.training import export
from r3l.training.checkpoint import copy_policy
from r3l.training.export import export_policy
from tests.support.update_world import SIZE, write_policy
from tests.unit.test_training_resume import step

IDS = torch.tensor([[5, 9, 33, 2, 17]])


def test_a_merged_adapter_says_the_same_without_peft(tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start")
    adapter = step(tmp_path, start, 1, policy_settings={"adapter": "lora", "lora_rank": 4}) / "policy"
    out = export_policy(adapter, tmp_path / "merged")
    assert not list(out.glob("adapter*"))
    base = AutoModelForCausalLM.from_pretrained(start).eval()
    with torch.no_grad():
        plain = base(IDS).logits
        expected = PeftModel.from_pretrained(base, str(adapter)).eval()(IDS).logits
        got = AutoModelForCausalLM.from_pretrained(out).eval()(IDS).logits
    assert torch.allclose(got, expected, atol=1e-5)
    assert (expected - plain).abs().max() > 1e-3
    assert AutoTokenizer.from_pretrained(out).chat_template


def test_a_whole_policy_is_copied_and_nothing_is_overwritten(tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start")
    out = export_policy(start, tmp_path / "out")
    one, two = (load_file(folder / "model.safetensors") for folder in (start, out))
    assert all(torch.equal(one[name], two[name]) for name in one)
    with pytest.raises(TrainingError, match="exists; choose a new one"):
        export_policy(start, out)
    with pytest.raises(TrainingError, match=r"no config\.json and no adapter_config\.json"):
        export_policy(tmp_path, tmp_path / "other")


def tied(folder: Path) -> Path:
    """A policy whose output layer has the embedding's weights."""
    write_policy(folder)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZE, "tie_word_embeddings": True})).eval()
    model.save_pretrained(str(folder))
    return folder


def adapter(base: Path, folder: Path, **options: Any) -> Path:
    torch.manual_seed(1)
    config = LoraConfig(r=2, lora_alpha=16, init_lora_weights=False, task_type="CAUSAL_LM", **options)
    get_peft_model(LlamaForCausalLM.from_pretrained(base), config).save_pretrained(str(folder))
    return folder


def test_an_adapter_of_a_shared_embedding_is_exported_with_an_output_layer_of_its_own(tmp_path: Path) -> None:
    base = tied(tmp_path / "base")
    source = adapter(base, tmp_path / "adapter", target_modules=["embed_tokens", "q_proj"])
    out = export_policy(source, tmp_path / "merged", str(base))
    with torch.no_grad():
        expected = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(base), str(source)).eval()(IDS).logits
        got = AutoModelForCausalLM.from_pretrained(out).eval()(IDS).logits
    assert torch.allclose(got, expected, atol=1e-4)


def test_an_export_that_is_another_policy_than_the_trainers_leaves_nothing(tmp_path, monkeypatch):
    base = write_policy(tmp_path / "base")
    source = adapter(base, tmp_path / "adapter", target_modules=["q_proj"])
    monkeypatch.setattr(export, "_merged", lambda source, base: LlamaForCausalLM.from_pretrained(base))
    with pytest.raises(TrainingError, match="other log-probabilities than the trainer"):
        export_policy(source, tmp_path / "merged", str(base))
    with pytest.raises(TrainingError, match="other log-probabilities than the trainer"):
        export_policy(base, tmp_path / "copied", canary=([5, 9, 33], [-1.0, -2.0]))
    assert {path.name for path in tmp_path.iterdir()} == {"base", "adapter"}


@pytest.mark.parametrize(("targets", "said"), [
    ("embed_tokens", "embeds the vocabulary"),
    ("lm_head", "vocabulary|not in the model"),
    ("q_proj, model.embed_tokens", "embeds the vocabulary"),
    ("norm", "no linear layer"),
    ("q_porj", "not in the model"),
])  # fmt: skip
@pytest.mark.parametrize("make", [write_policy, tied])
def test_what_no_adapter_may_change_is_refused_before_anything_is_sampled(tmp_path, targets, said, make):
    folder = make(tmp_path / "start")
    start = PolicySnapshot(str(folder), "d")
    config = compose(assignments=["policy.adapter=lora", f"policy.lora_targets={targets}"])
    with pytest.raises(ConfigError, match=rf"({said}).*expected all-linear, or some of down_proj, gate_proj"):
        check_adapter(config, start)
    check_adapter(config, start, training=False)
    for fine in ("all-linear", "q_proj,v_proj", "layers.0.mlp.up_proj"):
        check_adapter(compose(assignments=["policy.adapter=lora", f"policy.lora_targets={fine}"]), start)


@pytest.mark.parametrize("more", [{"lora_bias": True}, {"bias": "all"}, {"use_dora": True}], ids=str)
def test_an_adapter_that_bfloat16_would_leave_a_part_of_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    base = write_policy(tmp_path / "base")
    folder = adapter(base, tmp_path / "adapter", target_modules=["q_proj"], **more)
    start = PolicySnapshot(str(folder), "d", base_path=str(base))
    given = ["policy.adapter=lora", "policy.lora_rank=2"]
    check_adapter(compose(assignments=given), start)
    for where in ("policy", "training"):
        with pytest.raises(ConfigError, match="expected plain LoRA in bfloat16"):
            check_adapter(compose(assignments=[*given, f"{where}.dtype=bfloat16"]), start)


def test_the_engine_leaves_no_bias_of_an_adapter_out(tmp_path: Path) -> None:
    base = write_policy(tmp_path / "base")
    folder = adapter(base, tmp_path / "adapter", target_modules=["q_proj"], lora_bias=True)
    with pytest.raises(EngineError, match="expected plain LoRA"):
        load_model(PolicySnapshot(str(folder), "d", base_path=str(base)), torch.bfloat16, torch.device("cpu"))


def test_a_step_that_is_not_taken_copies_the_policy_without_the_notes_beside_it(tmp_path: Path) -> None:
    start, update = write_policy(tmp_path / "start"), tmp_path / "update"
    (start / "warm_start.json").write_text("{}")
    copy_policy(start, update / "policy")
    assert snapshot_digest(update / "policy") == snapshot_digest(start)
    assert not list(strangers(update, "demo/policies/iteration=00000"))
