"""An update's two policies and what can be planted in the place of the new one, for the canary's tests on every
engine."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from r3l.engines.base import Engine, PolicySnapshot
from r3l.engines.canary import TOLERANCES, check_canary
from r3l.errors import EngineError
from tests.unit.engine_policies import plain_logprobs, plain_model
from tests.unit.test_engine_reuse import adapted, adapter_on

IDS = [10, 40, 77, 23, 5, 61, 90, 14, 33, 52]
STEP = 3e-5
"""Of every weight, up or down: so small that the tolerance lets the old policy pass, as it has to where rounding is as
large."""


@dataclass(frozen=True)
class Update:
    """`canary`: what the update that made `after` of `before` wrote beside it."""

    before: PolicySnapshot
    after: PolicySnapshot
    canary: Path

    def planted(self, path: str) -> PolicySnapshot:
        """The new policy by name, with the weights of `path`."""
        return replace(self.after, path=path)


def updated_adapter(base: PolicySnapshot, folder: Path) -> Update:
    before = replace(adapter_on(base, folder / "before"), digest="step-7")
    after = replace(adapter_on(base, folder / "after"), digest="step-8")
    _step(folder / "before/adapter_model.safetensors", folder / "after/adapter_model.safetensors")
    return Update(before, after, _canary(folder, adapted(base, before), adapted(base, after)))


def updated_weights(before: PolicySnapshot, folder: Path) -> Update:
    shutil.copytree(before.path, folder)
    after = PolicySnapshot(str(folder), "llama-8")
    _step(Path(before.path) / "model.safetensors", folder / "model.safetensors")
    return Update(before, after, _canary(folder, plain_model(before), plain_model(after)))


def _step(before: Path, after: Path) -> None:
    chance = torch.Generator().manual_seed(8)
    moved = {
        name: weight + STEP * torch.randn(weight.shape, generator=chance).sign()
        for name, weight in load_file(before).items()
    }
    save_file(moved, after, {"format": "pt"})


def _canary(folder: Path, before: Any, after: Any) -> Path:
    old, new = (plain_logprobs(model, IDS).tolist() for model in (before, after))
    assert sum(abs(a - b) for a, b in zip(new, old, strict=True)) / len(old) < TOLERANCES["float32"]
    (folder / "canary.json").write_text(
        json.dumps({"policy": "step-8", "token_ids": IDS, "logprobs": new, "before": old})
    )
    return folder / "canary.json"


def caught(engine: Engine, update: Update, planted: PolicySnapshot, said: str) -> None:
    """The canary refuses `planted`, and names what it is."""
    engine.load_policy(planted)
    with pytest.raises(EngineError, match=said):
        check_canary(engine, update.canary, "float32")
