"""`r3l doctor`: what it says of a policy that works, of a reasoning model's template, and of each thing that can be
wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner

from flows.cli.commands.prepare import doctor, show_findings
from flows.cli.screen.console import CleanConsole
from flows.cli.settings import settings
from r3l.config import Config
from r3l.config.machines import load_machine
from r3l.engines.chat_format import ChatFormat
from r3l.pipeline import preflight
from r3l.pipeline.doctor import folder as of
from r3l.pipeline.doctor.examine import examine
from r3l.pipeline.doctor.findings import Finding, Verdict
from tests.unit.chat_tokenizers import FAMILIES, family_tokenizer

POLICY = Path("data/policies/household-easy-0").absolute()
NEVER = (
    "{{ bos_token }}{% for m in messages %}{{ loop.index }}/{{ messages|length }}"
    "<|user|>{{ m['content'] }}<|end|>{% endfor %}"
)


def config_of(policy: Path | str, machine: str = "", *assignments: str) -> Config:
    given = ["environment.level=easy", "environment.workers=1", *assignments]
    return settings("doctor", "paper", "r3l", str(policy), "household", "", given, machine=machine)


def by_check(found: Any) -> dict[str, Finding]:
    return {one.check: one for one in found}


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A copy of a policy with its config.json, or another file, changed."""

    def make(file: str = "", text: str = "", **config: Any) -> Path:
        shutil.copytree(POLICY, tmp_path / "policy")
        said = json.loads((POLICY / "config.json").read_text()) | config
        (tmp_path / "policy" / "config.json").write_text(json.dumps(said))
        if file:
            (tmp_path / "policy" / file).write_text(text)
        return tmp_path / "policy"

    return make


def test_a_policy_that_works_fails_no_check() -> None:
    found = by_check(examine(config_of(POLICY, "", "environment.reply_tokens=48", "rollout.reflection_tokens=64")))
    assert [name for name, one in found.items() if one.verdict == Verdict.FAILS] == []
    assert found["canary"].verdict == Verdict.WORKS
    assert float(found["canary"].seen.split("differ by ")[1].split()[0]) < 1e-4
    assert "'<|end|>'" in found["end of turn"].seen
    assert "room for" in found["task"].seen
    assert {"reply", "reflection"} <= set(found)


def test_the_embedded_policy_as_its_preset_has_it() -> None:
    found = list(examine(settings("doctor", "paper", "r3l", "embedded", "household", "", []), sampling=False))
    assert {one.verdict for one in found} == {Verdict.WORKS}
    assert {"weights", "context", "memory", "tokenizer", "template", "thinking"} <= {one.check for one in found}


def test_an_engine_that_runs_another_policy_fails_the_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    from r3l.training import canary

    monkeypatch.setattr(canary, "starting_logprobs", lambda path, base, policy, ids: [-0.5] * (len(ids) - 1))
    found = by_check(examine(config_of(POLICY)))
    assert found["canary"].verdict == Verdict.FAILS
    assert "does not run the policy" in found["canary"].seen
    assert "reply" in found, "one fault does not hide the next"


def test_a_broken_template_is_told_and_what_needs_one_is_not_asked(changed: Callable[..., Path]) -> None:
    found = by_check(examine(config_of(changed("chat_template.jinja", NEVER))))
    assert found["template"].verdict == Verdict.FAILS
    assert "rewrites earlier turns" in found["template"].seen
    assert found["reply"].verdict == found["tokenizer"].verdict == Verdict.UNASKED
    assert found["weights"].verdict == Verdict.WORKS


@pytest.mark.parametrize(("config", "check", "said"), [
    ({"auto_map": {"AutoModel": "code.Model"}}, "weights", "needs code of its own"),
    ({"max_position_embeddings": 1024}, "context", "policy.context_tokens=4,096, made for 1,024"),
    ({"vocab_size": 4}, "tokenizer", "the model has 4 rows"),
])  # fmt: skip
def test_what_a_folder_says_of_itself(changed, config, check, said):
    found = by_check(examine(config_of(changed(**config)), sampling=False))
    assert found[check].verdict == Verdict.FAILS
    assert said in found[check].seen


def test_a_missing_policy_fails_the_first_check() -> None:
    [only] = examine(config_of("embedded", "", 'policy.path="/not/here"'))
    assert (only.check, only.verdict) == ("policy", Verdict.FAILS)


@pytest.mark.parametrize(("family", "verdict", "said"), [
    ("qwen2.5", Verdict.WORKS, "the template knows none"),
    ("smollm2", Verdict.WORKS, "the template knows none"),
    ("qwen3", Verdict.NOTE, "drops it from earlier turns; the ids keep it"),
    ("qwen3-plain", Verdict.NOTE, r"a reply opens with '<think>\n\n</think>\n\n'"),
])  # fmt: skip
def test_the_doctor_says_what_a_template_does_with_thinking(family: str, verdict: Verdict, said: str) -> None:
    template, thinking = FAMILIES[family]
    [found] = of.thinking(ChatFormat(family_tokenizer(template), thinking))
    assert found.verdict == verdict
    assert said in found.seen


def test_a_template_that_keeps_thinking_between_turns_is_reported() -> None:
    tokenizer = family_tokenizer("qwen2.5")
    keeping = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, eos_token="<|im_end|>")
    keeping.chat_template = tokenizer.chat_template + "{# a <think> is kept as it is #}"
    [found] = of.thinking(ChatFormat(keeping))
    assert (found.verdict, "keeps it between turns" in found.seen) == (Verdict.WORKS, True)


def test_memory_is_that_of_the_machine_or_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    large = config_of("qwen2.5-7b", "one_gpu")
    [fault] = of.memory(large, load_machine("one_gpu"))
    assert fault.verdict == Verdict.FAILS
    assert "0 of 20,480 tokens" in fault.seen
    adapter = config_of("qwen2.5-7b", "one_gpu", "policy.adapter=lora")
    [fits] = of.memory(adapter, load_machine("one_gpu"))
    assert fits.verdict == Verdict.WORKS
    free = type("Memory", (), {"available": 1e6})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    [short] = of.memory(config_of(POLICY), None)
    assert short.verdict == Verdict.FAILS


def test_an_update_without_its_gpu_is_told_beside_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "GPUS", ("/not/here",))
    found = by_check(examine(config_of(POLICY, "one_gpu"), load_machine("one_gpu"), sampling=False))
    assert (found["gpu"].verdict, found["memory"].verdict) == (Verdict.FAILS, Verdict.WORKS)
    assert "this machine has no GPU" in found["gpu"].seen
    monkeypatch.setattr(preflight, "GPUS", ("/dev/null",))
    assert [one.verdict for one in of.gpu(config_of(POLICY, "one_gpu"))] == [Verdict.WORKS]
    assert list(of.gpu(config_of(POLICY))) == []


def test_the_command_ends_with_2_where_something_fails(changed: Callable[..., Path]) -> None:
    app = typer.Typer()
    app.command()(doctor)
    asked = ["--environment", "household", "--no-sample", "--json", "--policy"]
    done = CliRunner().invoke(app, [*asked, str(POLICY)])
    assert done.exit_code == 0, done.output
    assert {one["verdict"] for one in json.loads(done.stdout)} == {"works"}
    assert CliRunner().invoke(app, [*asked, str(changed(auto_map={}))]).exit_code == 2


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_a_terminal_and_shows_text_as_text(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    said = Finding("reply", Verdict.NOTE, "[red]a reply[/red] \x1b[2J" + "long " * 60, "do something")
    show_findings(CleanConsole(width=width), "a policy", [said])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert "[red]a reply[/red]" in "".join(lines)
    assert "\x1b" not in "".join(lines)
