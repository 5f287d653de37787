"""`--policy`: a preset, a folder, or a model of the hub; and what a machine with GPUs makes of it."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from flows.cli.settings import settings
from r3l.config import Config
from r3l.config.engines import VllmServerSettings
from r3l.engines.made_policies import hub_name
from r3l.errors import ConfigError, EngineError
from r3l.pipeline import preflight
from r3l.pipeline.making import ensure_model
from r3l.pipeline.preflight import check, check_gpu, check_servers
from r3l.system import machine

EMBEDDED = Path("data/policies/household-easy-0").absolute()


def config_of(policy: str, machine: str = "", *assignments: str) -> Config:
    return settings("demo", "paper", "r3l", policy, "household", "", list(assignments), machine=machine)


def test_a_model_of_the_hub_is_fetched_into_a_folder_of_its_name() -> None:
    config = config_of("Qwen/Qwen2.5-0.5B-Instruct", "one_gpu")
    assert (config.policy.name, config.policy.path) == (
        "Qwen/Qwen2.5-0.5B-Instruct",
        "data/policies/hub/Qwen/Qwen2.5-0.5B-Instruct",
    )
    assert (config.training.learning_rate, config.policy.dtype) == (1e-6, "bfloat16")
    engine = config.engine
    assert isinstance(engine, VllmServerSettings)
    assert (engine.gpus, engine.sleep) == ("0", 1)
    assert config_of("a/b@v1.0").policy.path == "data/policies/hub/a/b@v1.0"


def test_a_folder_is_a_language_model_where_there_are_gpus_and_a_small_policy_where_there_are_none() -> None:
    assert config_of(str(EMBEDDED), "eight_gpus").training.learning_rate == 1e-6
    assert config_of(str(EMBEDDED)).training.learning_rate == 3e-4


@pytest.mark.parametrize("policy", ["./a/b", "~/a", "a/b/c", "/a/b"])
def test_a_path_is_no_name_on_the_hub(policy: str) -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        config_of(policy)


def test_a_folder_that_is_missing_beside_others_is_no_name_on_the_hub(tmp_path, monkeypatch):
    (tmp_path / "policies").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="there is no such folder"):
        config_of("policies/mine")


class Hub:
    """What the hub has, by repository and revision."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **files: str) -> None:
        import huggingface_hub

        self.files, self.asked = files, []
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.download)
        monkeypatch.setenv("R3L_HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)

    def download(self, repository: str, revision: str | None, local_dir: str, **options: Any) -> None:
        self.asked.append((repository, revision))
        Path(local_dir).mkdir(parents=True)
        for name, text in self.files.items():
            Path(local_dir, name.replace("_dot_", ".")).write_text(text)


def test_what_is_fetched_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = Hub(monkeypatch, tmp_path, config_dot_json="{}", model_dot_safetensors="w")
    folder = Path("data/policies/hub/org/name@abc")
    assert hub_name(folder) == "org/name@abc"
    for _ in range(2):
        ensure_model("org/name@abc", folder)
    assert hub.asked == [("org/name", "abc")]
    assert (folder / "model.safetensors").read_text() == "w"


def test_of_two_that_want_a_policy_one_makes_it_and_the_other_waits(monkeypatch, tmp_path):
    hub = Hub(monkeypatch, tmp_path, config_dot_json="{}", model_dot_safetensors="w")
    both_want_it = Barrier(2)
    download = hub.download
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: (time.sleep(0.2), download(*a, **k)))

    def want() -> None:
        both_want_it.wait()
        ensure_model("org/name", Path("data/policies/hub/org/name"))

    with ThreadPoolExecutor(2) as pool:
        for one in [pool.submit(want) for _ in range(2)]:
            one.result()
    assert hub.asked == [("org/name", None)]


@pytest.mark.parametrize(("files", "said"), [
    ({"config_dot_json": '{"auto_map": {"AutoModel": "code.Model"}}', "a_dot_safetensors": ""}, "code of its own"),
    (
        {"config_dot_json": "{}", "pytorch_model_dot_bin": ""},
        r"pytorch_model.bin, expected \*.safetensors: pickles",
    ),
])  # fmt: skip
def test_pickles_and_foreign_code_are_refused(monkeypatch, tmp_path, files, said):
    Hub(monkeypatch, tmp_path, **files)
    folder = Path("data/policies/hub/org/name")
    with pytest.raises(ConfigError, match=f"org/name of the hub can't be used: .*{said}"):
        ensure_model("org/name", folder)
    assert not folder.exists()


def test_an_update_without_its_gpu_is_refused_before_anything_is_fetched(tmp_path, monkeypatch):
    asked = [f"store.root={tmp_path}", "policy.path=not/there"]
    monkeypatch.setattr(preflight, "GPUS", (str(tmp_path / "nvidia[0-9]*"),))
    with pytest.raises(ConfigError, match=r"training.device=cuda, and this machine has no GPU .*training.device=auto"):
        check(config_of("org/name", "one_gpu", *asked))
    for elsewhere in ("training.device=cpu", "placement.update_deployment=r3l-update/update"):
        check_gpu(config_of("org/name", "one_gpu", *asked, elsewhere))
    (tmp_path / "nvidia0").touch()
    check_gpu(config_of("org/name", "one_gpu", *asked))


@pytest.mark.parametrize(("features", "gpus", "assignments", "advice"), [
    ("avx2 fma", (), [], "--set policy.dtype=float32 --set training.dtype=float32"),
    ("avx2 fma", ("/dev/null",), [], "--set policy.dtype=float32"),
    ("avx2 fma", ("/dev/null",), ["training.device=cpu"], "--set policy.dtype=float32 --set training.dtype=float32"),
    ("avx2 fma", (), ["policy.dtype=float32"], "--set training.dtype=float32"),
    ("avx2 fma", (), ["policy.dtype=float32", "placement.update_deployment=r3l-update/update"], ""),
    ("avx2 fma", ("/dev/null",), ["engine.kind=vllm_server"], ""),
    ("avx2 avx512_bf16", (), [], ""),
    ("asimd bf16", (), [], ""),
    ("", (), [], ""),  # not known
])  # fmt: skip
def test_a_processor_without_bfloat16_is_said(features, gpus, assignments, advice, monkeypatch, caplog):
    monkeypatch.setattr(machine, "this_machine", lambda: {"features": features})
    monkeypatch.setattr(preflight, "GPUS", gpus)
    preflight.warn_of_bfloat16(config_of("smollm2-household", "", *assignments), training=True)
    assert [message.rpartition("start: ")[2] for message in caplog.messages] == ([advice] if advice else [])


def test_what_vllm_would_refuse_is_said_before_the_run_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "GPUS", ("/dev/null",))
    policy = tmp_path / "policy"
    shutil.copytree(EMBEDDED, policy)
    asked = [f"store.root={tmp_path / 'runs'}", "environment.level=easy"]
    with pytest.raises(ConfigError, match=r"policy.context_tokens=8192, and .* was made for 4096.*context_tokens=4096"):
        check(config_of(str(policy), "one_gpu", *asked))
    short = ["policy.context_tokens=4096", *asked]
    monkeypatch.setenv("R3L_VLLM_PYTHON", str(tmp_path / "no/bin/python"))
    with pytest.raises(EngineError, match="vLLM needs an environment of its own"):
        check(config_of(str(policy), "one_gpu", *short))
    with pytest.raises(ConfigError, match=r"engine.gpus=0 starts servers that only this host reaches"):
        check_servers(config_of(str(policy), "one_gpu", *short, "placement.shards=workers"), policy)
    monkeypatch.setenv("R3L_VLLM_PYTHON", __file__)
    check(config_of(str(policy), "one_gpu", *short))
    config = json.loads((policy / "config.json").read_text())
    del config["max_position_embeddings"]
    (policy / "config.json").write_text(json.dumps(config))
    check_servers(config_of(str(policy), "one_gpu", *asked), policy)
