"""The `r3l` command as a user types it: bad input is one clear message, before work starts, with nothing written."""

import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Commands, Said, forking


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with forking() as found:
        yield found


@pytest.fixture
def refused(commands):
    """The command ends with exit code 2 and the message."""

    def ends(message: str, *arguments: str, **environment: str) -> Said:
        done = commands.run(*arguments, **environment)
        said = " ".join(done.stderr.split())
        assert done.returncode == 2, done.stdout + done.stderr
        assert message in said, said
        assert "Traceback" not in said
        return done

    return ends


@pytest.fixture
def refused_at_once(refused):
    """Refused before Prefect is even loaded, whose server takes seconds to start."""

    def ends(message: str, *arguments: str, **environment: str) -> None:
        assert not refused(message, *arguments, **environment).loaded_prefect

    return ends


def test_a_policy_that_is_neither_a_folder_nor_a_preset_is_refused(refused_at_once):
    refused_at_once("policy ./missing: there is no such folder; expected one with", "iterate", "--policy", "./missing")
    refused_at_once(
        "policy embeded: neither a preset nor a folder; the presets are embedded", "evaluate", "--policy", "embeded"
    )


def test_truncated_weights_are_refused(refused_at_once, tmp_path):
    policy = Path("data/policies/household-easy-0")
    shutil.copytree(policy, tmp_path / "policy")
    weights = tmp_path / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    size = weights.stat().st_size
    refused_at_once(
        f"model.safetensors has {size:,} bytes and is cut or damaged", "iterate", "--policy", str(tmp_path / "policy"),
        "--quiet", R3L_STORE=str(tmp_path / "store"),
    )  # fmt: skip
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("asked", "message"), [
    (["--iteration", "1", "--from", "credits"], "unknown stage 'credits': expected one of tasks, base"),
    (["--iteration", "1", "--from", "updates", "--to", "credit"], "--from updates comes after --to credit"),
    (["--iteration", "7"], "run sample: no iteration 7 in"),
    (["--iteration", "1", "--set", "method.alpah=5"], "method.alpah: unknown setting"),
])  # fmt: skip
def test_an_impossible_replay_is_refused_at_once(refused_at_once, asked, message, tmp_path):
    shutil.copytree("data/sample_run", tmp_path / "store")
    before = sorted(tmp_path.rglob("*"))
    refused_at_once(message, "replay", "sample", *asked, "--store", str(tmp_path / "store"))
    assert sorted(tmp_path.rglob("*")) == before


def test_an_impossible_iteration_is_refused_at_once(refused_at_once, tmp_path):
    shutil.copytree("data/sample_run", tmp_path / "store")
    store = {"R3L_STORE": str(tmp_path / "store")}
    refused_at_once(
        "iteration=9: run sample has policies up to iteration 1", "evaluate", "sample", "--iteration", "9", "--quiet",
        **store,
    )  # fmt: skip
    refused_at_once("iteration=-1 names the starting policy", "iterate", "--iteration", "-1", "--quiet", **store)
    refused_at_once("policies/iteration=00001/policy in", "iterate", "--run", "sample", "--quiet", **store)


@pytest.mark.parametrize(
    "arguments", [("--environment", "webshop"), ("--recipe", "easy"), ("--recipe", "standard", "--forgets", "0.5")]
)
def test_a_warm_start_that_no_recipe_makes_is_refused(refused, arguments):
    refused("expected alfworld with standard or latent, or the household", "warm-start", *arguments)


@pytest.mark.parametrize("arguments", [
    ("--policy", "smollm2", "--environment", "household"),
    ("--adapter", "lora", "--environment", "household"),
    ("--policy", "smollm2", "--adapter", "lora"),
    ("--policy", "smollm2", "--adapter", "lora", "--environment", "household", "--forgets", "1"),
])  # fmt: skip
def test_a_warm_start_of_a_pretrained_model_needs_model_adapter_and_household(refused, arguments):
    refused("expected --policy NAME --adapter lora --environment household", "warm-start", *arguments)


def test_more_test_tasks_than_the_split_has_are_refused(refused_at_once, tmp_path):
    refused_at_once(
        "evaluation.tasks=5000: alfworld/heldout has only 100 tasks", "evaluate", "--tasks", "5000", "--quiet",
        R3L_STORE=str(tmp_path / "store"),
    )  # fmt: skip


def test_a_store_that_is_not_writable_is_refused(refused, tmp_path):
    (tmp_path / "file").write_text("")
    refused("not writable", "iterate", R3L_STORE=str(tmp_path / "file" / "store"))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no folders even of root")
@pytest.mark.parametrize(
    "command", [("iterate",), ("evaluate", "demo"), ("train",), ("replay", "demo", "--iteration", "0")]
)
def test_a_store_where_no_folder_can_be_made_is_refused(refused_at_once, command):
    refused_at_once("store /proc/x: not", *command, "--store", "/proc/x")


@pytest.mark.parametrize("command", [("audit", "data/sample_run", "--no-browser"), ("up",), ("server",)])
def test_a_taken_port_is_one_line_before_anything_starts(refused, tmp_path, command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = refused(
            f"port {port} of 127.0.0.1: Address already in use", *command, "--port", str(port), R3L_HOME=str(tmp_path)
        )
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.log"))


def test_a_policy_folder_without_a_tokenizer_is_refused(refused, tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    source = Path("data/policies/embedded/model.safetensors").absolute()
    (tmp_path / "policy" / "model.safetensors").symlink_to(source)
    refused("no tokenizer found", "iterate", "--policy", str(tmp_path / "policy"), R3L_STORE=str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
