"""An exported adapter is an ordinary model that says what base and adapter said together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from r3l.errors import TrainingError
from r3l.training.export import export_policy
from tests.support.update_world import write_policy
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
