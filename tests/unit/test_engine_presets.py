"""The model presets: each parses with every environment, and the paper's models have the paper's numbers."""

from pathlib import Path

import pytest

from r3l.config import compose, preset_names
from r3l.config.engines import ENGINE_KINDS
from r3l.engines import ENGINES, made_policies
from r3l.engines.made_policies import HUB
from r3l.errors import ConfigError
from r3l.pipeline.making import ensure_model

PAPER = {"qwen2.5-1.5b", "qwen2.5-7b", "qwen3-4b", "llama-3.2-3b"}


def test_every_kind_of_the_settings_has_an_engine() -> None:
    assert {*ENGINE_KINDS.names()} == {*ENGINES}


@pytest.mark.parametrize("model", preset_names("policies"))
def test_a_model_preset_parses_with_every_environment(model: str) -> None:
    for environment in preset_names("environments"):
        assert compose(policy=model, environment=environment).policy.name == model


@pytest.mark.parametrize("model", sorted(PAPER))
def test_the_papers_models_have_the_papers_numbers(model: str) -> None:
    config = compose(policy=model)
    assert (
        config.policy.context_tokens,
        config.training.learning_rate,
        config.rollout.tasks,
        config.rollout.reflection_tokens,
    ) == (20480, 1e-6, 96, 4096)
    assert config.engine.kind == "vllm_server"
    assert config.policy.adapter == "none"


def test_smollm2_trains_an_adapter_with_the_embedded_engine() -> None:
    config = compose(policy="smollm2", environment="math")
    assert (config.policy.adapter, config.policy.lora_rank, config.training.learning_rate) == ("lora", 16, 5e-4)
    assert (config.engine.kind, config.environment.reply_tokens) == ("transformers_local", 96)


@pytest.mark.parametrize("model", sorted(PAPER))
def test_the_papers_models_are_fetched_where_they_are_not_there(model, tmp_path, monkeypatch):
    fetched: list[tuple[str, Path]] = []
    monkeypatch.setattr(made_policies, "_fetch", lambda repository, folder: fetched.append((repository, folder)))
    path = Path(compose(policy=model).policy.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("R3L_HOME", str(tmp_path))
    ensure_model(model, path)
    assert fetched == [(HUB[model], path)]
    ensure_model(model, Path("somewhere/else"))
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    ensure_model(model, path)
    assert len(fetched) == 1


def test_a_hub_that_does_not_answer_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def refused(*arguments: object, **options: object) -> None:
        raise OSError("no route to the hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refused)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("R3L_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"Qwen/Qwen3-4B can't be fetched .*policy.path"):
        ensure_model("qwen3-4b", Path("data/policies/qwen3-4b"))
