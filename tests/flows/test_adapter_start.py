"""A run that starts from an adapter: it lies on its base everywhere, is trained on, and servers are given both."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from flows.cli.settings import settings
from r3l.config import Config, compose
from r3l.engines.base import PolicySnapshot
from r3l.errors import ConfigError
from r3l.exploration.explorer import Incidents
from r3l.exploration.progress import Progress
from r3l.pipeline.policies import Policies, starting_policy
from r3l.pipeline.preflight import check_adapter
from r3l.pipeline.workbench import Workbench
from r3l.planning.shapes import shape_of
from r3l.store.check import check_run
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store
from r3l.training.checkpoint import policy_weights, save_policy
from r3l.training.policy import load_policy
from tests.flows.corridor import corridor, iteration
from tests.support.answers import ask
from tests.support.rehearsal import tiny_policy

__all__ = ["corridor"]
RATE = 0.001


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A random adapter of rank 4 in a folder of its own; the base is in `base` beside it."""
    base = tiny_policy(tmp_path / "base", 0)
    drawn = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), drawn).save_pretrained(str(tmp_path / "mine"))
    return tmp_path / "mine"


def config(adapter: Path, *assignments: str) -> Config:
    given = ["rollout.tasks=2", "rollout.group_size=4", f"training.learning_rate={RATE}", f"policy.path={adapter}"]
    lora = ["policy.adapter=lora", "policy.lora_rank=4", f"store.root={adapter.parent / 'store'}"]
    return compose(run="demo", assignments=[*given, *lora, *assignments])


@pytest.mark.usefixtures("corridor")
def test_the_update_goes_on_from_the_adapter(adapter: Path) -> None:
    store, base = Store.open(str(adapter.parent / "store")), str(adapter.parent / "base")
    found = [iteration(config(adapter), store, number) for number in range(2)]
    assert found[0].behaviour == PolicySnapshot(str(adapter), snapshot_digest(adapter), base)
    later = found[1].behaviour
    assert later.base_path == base
    assert later.digest != found[0].start.digest == found[1].start.digest
    before, after = (load_file(Path(one) / "adapter_model.safetensors") for one in (adapter, later.path))
    moved = {name: float((after[name] - weight).abs().max()) for name, weight in before.items()}
    assert before.keys() == after.keys()
    assert 0 < max(moved.values()) < 2 * RATE  # AdamW's first step, and no new adapter
    [first, second] = ask(store, "SELECT parent_policy, policy, kl_start FROM updates ORDER BY iteration")
    assert (first["parent_policy"], first["policy"]) == (found[0].start.digest, second["parent_policy"])
    assert first["kl_start"] == 0 < second["kl_start"]
    assert check_run(store, "demo") == []


def test_an_adapter_names_its_layers_in_one_order(adapter: Path, tmp_path: Path) -> None:
    """Else the digest of the same weights would depend on the order of a set."""
    for path, base in ((tmp_path / "base", None), (adapter, tmp_path / "base")):
        policy = load_policy(
            str(path), base and str(base), config(adapter).policy, dtype="float32", device=torch.device("cpu")
        )
        save_policy(policy, policy_weights(policy, "float32"), tmp_path / "written")
        named = json.loads((tmp_path / "written/adapter_config.json").read_text())["target_modules"]
        assert len(named) == 7
        assert named == sorted(named)


@pytest.mark.parametrize("updated", [False, True])
def test_servers_are_given_the_base_of_an_adapter_that_no_canary_compares(adapter: Path, updated: bool) -> None:
    start = starting_policy(config(adapter))
    later = replace(start, digest="later") if updated else start
    loaded: list[Any] = []
    engine = SimpleNamespace(load_policy=loaded.append, score_each=lambda ids: {})
    tools: Any = SimpleNamespace(engine=lambda _: engine, incidents=Incidents(), canary_errors={})
    folder = adapter.parent / "iteration=00000" if updated else None
    known = Policies(start, later, later, folder, folder)
    served = config(adapter, "engine.kind=vllm_server")
    Workbench(served, Store.open(served.store.root), int(updated), known, Progress(), tools=tools).equip()
    assert start.base_path is not None
    base = PolicySnapshot(start.base_path, snapshot_digest(start.base_path))
    assert loaded == ([later] if updated else [base, start])


@pytest.mark.parametrize(("wrong", "said"), [
    ("policy.lora_rank=16", "adapter of rank 4; got policy.adapter=lora, policy.lora_rank=16; set .*lora_rank=4"),
    ("policy.adapter=none", "got policy.adapter=none"),
    ("placement.shards=workers", "other hosts can't start from"),
    ("placement.update_deployment=r3l-update/update", "other hosts can't start from"),
])  # fmt: skip
def test_what_does_not_go_with_an_adapter_is_said_before_the_run(adapter: Path, wrong: str, said: str) -> None:
    check_adapter(config(adapter), starting_policy(config(adapter)))
    with pytest.raises(ConfigError, match=said):
        check_adapter(config(adapter, wrong), starting_policy(config(adapter)))


def test_a_base_that_is_missing_or_cut_is_said(adapter: Path) -> None:
    weights = adapter.parent / "base/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(ConfigError, match=r"base: model.safetensors .* cut"):
        starting_policy(config(adapter))
    named = adapter / "adapter_config.json"
    named.write_text(json.dumps(json.loads(named.read_text()) | {"base_model_name_or_path": "/nowhere"}))
    with pytest.raises(ConfigError, match="policy folder /nowhere: not there"):
        starting_policy(config(adapter))


def test_an_adapters_folder_settles_what_is_trained(adapter: Path) -> None:
    given = settings("demo", "paper", "r3l", str(adapter), "household", "", [])
    assert (given.policy.adapter, given.policy.lora_rank, given.policy.lora_alpha) == ("lora", 4, 8)
    assert shape_of(given.policy) == shape_of(config(adapter, f"policy.path={adapter.parent / 'base'}").policy)
