"""The update on a GPU: the gradient of the CPU, whole jobs in bfloat16, and layers run again."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.update_world import relative_error, write_policy
from tests.unit.test_training_resume import step

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


def moments(out: Path) -> torch.Tensor:
    state = load_file(out / "optimizer" / "optimizer.safetensors")
    return torch.cat([state[name].flatten() for name in sorted(state) if name.startswith("exp_avg/")])


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_the_step_is_that_of_the_cpu(adapter: str, tmp_path: Path) -> None:
    start = write_policy(tmp_path / "start")
    policy = {"policy_settings": {"adapter": adapter, "lora_rank": 4}}
    cpu = step(tmp_path, start, 1, name="cpu", **policy)
    cases = [
        ("wide", {}, 1e-5),
        ("narrow", {"dtype": "bfloat16"}, 0.03),
        ("recomputed", {"checkpoint_segments": True}, 1e-5),
    ]
    for name, settings, tolerance in cases:
        gpu = step(tmp_path, start, 1, name=name, device="cuda", **settings, **policy)
        assert relative_error(moments(gpu), moments(cpu)) < tolerance, name
        assert json.loads((gpu / "update.json").read_text())["peak_memory_mb"] > 0
