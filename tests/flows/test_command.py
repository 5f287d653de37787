"""The `r3l` command as a user types it: bad input is one clear message, before work starts, with nothing written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

R3L = [sys.executable, "-m", "flows.cli"]


def r3l(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*R3L, *arguments], capture_output=True, text=True, env=os.environ | environment, timeout=120, check=False)


def refused(message: str, *arguments: str, **environment: str) -> None:
    done = r3l(*arguments, **environment)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in said, said
    assert "Traceback" not in said


def test_an_unknown_preset():
    refused("unknown preset 'papr' in methods: expected one of", "iterate", "--preset", "papr")


def test_an_unknown_setting():
    refused("method.alpah: unknown setting", "iterate", "--set", "method.alpah=5")


@pytest.mark.parametrize(("value", "message"), [("7", "multiple of 2 (got 7)"), ("0", "greater than or equal to 2 (got 0)")])
def test_an_odd_or_too_small_group(value, message):
    refused(message, "iterate", "--set", f"rollout.group_size={value}")


def test_a_store_that_is_not_writable(tmp_path):
    (tmp_path / "file").write_text("")
    refused("not writable", "iterate", R3L_STORE=str(tmp_path / "file" / "store"))


def test_a_policy_folder_without_a_tokenizer(tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    source = Path("data/policies/embedded/model.safetensors").absolute()
    (tmp_path / "policy" / "model.safetensors").symlink_to(source)
    refused("no tokenizer found", "iterate", "--policy", str(tmp_path / "policy"), R3L_STORE=str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_a_chat_template_that_rewrites_history(tmp_path):
    from transformers import AutoTokenizer

    policy = tmp_path / "policy"
    tokenizer = AutoTokenizer.from_pretrained("data/policies/embedded")
    tokenizer.chat_template = ("{% for m in messages %}{% if loop.last or m.role != 'assistant' %}<|{{ m.role }}|>{{ m.content }}<|end|>"
                               "{% endif %}{% endfor %}{{ messages | length }}{% if add_generation_prompt %}<|assistant|>{% endif %}")
    tokenizer.save_pretrained(policy)
    for name in ("config.json", "model.safetensors"):
        (policy / name).symlink_to(Path("data/policies/embedded", name).absolute())
    refused("rewrites earlier turns", "iterate", "--policy", str(policy), R3L_STORE=str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_more_tasks_than_exist(tmp_path):
    refused("rollout.tasks=5000: alfworld/train has only 200 tasks", "iterate", "--set", "rollout.tasks=5000",
            R3L_STORE=str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_a_query_that_is_none(tmp_path):
    refused("this query can't be run", "sql", "SELEC 1", R3L_STORE=str(tmp_path / "store"))


def test_help_names_every_command():
    said = r3l("--help").stdout
    for command in ("iterate", "train", "warm-start", "sql", "check", "runs", "presets", "replay"):
        assert command in said
    assert "─ Commands ─" not in said, "a command is in no box of flows/cli.py HELP"
