"""Commands that are printed or written down for a person run as they stand: on their store and line, with an answer."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flows.cli import app
from r3l.config import compose
from r3l.evaluation.benchmarks import pose
from r3l.pipeline.summary import questions, summarise
from r3l.store.stage import Store
from r3l.system.pasted import runnable
from tests.support.store_iteration import commit_iteration, iteration_tables
from tests.unit.test_readme import commands

ROOT = Path(__file__).parents[2]
QUERIES = sorted(ROOT.glob("data/queries/*.sql"))[:3]
RETRIED = {"reflections", "retries", "distilled", "oracle_pivots"}


def run(words: list[str], **given):
    return CliRunner().invoke(app.app_of([words[0]]), words, **given)


@pytest.mark.parametrize("retries", [True, False], ids=["with retries", "without"])
def test_the_questions_after_an_iteration_have_answers(retries, tmp_path, monkeypatch):
    for name in ("R3L_STORE", "R3L_HOME"):
        monkeypatch.delenv(name, raising=False)
    store = Store.open(str(tmp_path / "it's here"))
    tables = {stage: rows for stage, rows in iteration_tables(0).items() if retries or stage not in RETRIED}
    commit_iteration(store, tables=tables)
    summary = summarise(store, "demo", "", 0)
    summary["store"] = store.root
    for line in questions(summary):
        program, *words = shlex.split(line)
        assert Path(program).name == "r3l"
        done = run([*words, "--json"])
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("{"), f"{line}: no rows"
        assert retries or "pivot" not in line


def test_a_message_names_the_store_of_the_command_line():
    told = runnable("see `r3l runs`, `r3l check demo` or `r3l prepare alfworld`", "/a b")
    assert re.findall("`.*?r3l (.*?)`", told) == [
        "runs --store '/a b'",
        "check demo --store '/a b'",
        "prepare alfworld",
    ]
    assert "--store" not in runnable("see `r3l runs`")
    verbs = typer.main.get_command(app.app_of(app.PLACES)).commands
    for verb, command in verbs.items():
        takes_store = any("--store" in option.opts for option in command.params)
        assert ("--store" in runnable(f"`r3l {verb}`", "/a b")) == takes_store, verb


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_a_worked_question_is_asked_by_its_file_and_by_its_text(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    by_file = run(["sql", "--file", str(path), "--store", "data/sample_run", "--json"])
    by_text = run(["sql", path.read_text(), "--store", "data/sample_run", "--json"])
    assert (by_file.exit_code, by_text.exit_code) == (0, 0), by_file.output + by_text.output
    assert sorted(by_file.stdout.splitlines()) == sorted(by_text.stdout.splitlines()) != []


def test_the_guides_questions_run_as_they_are_written(monkeypatch):
    monkeypatch.chdir(ROOT)
    pages = [*ROOT.glob("data/*.md"), *ROOT.glob("data/*/*.md"), *ROOT.glob("infra/*.md")]
    lines = {line for page in pages for line in commands(page.read_text(encoding="utf-8")) if "sample_run" in line}
    asked = [shlex.split(line)[1:] for line in lines if line.startswith("r3l sql ")]
    assert asked
    for words in asked:
        done = run(words)
        assert done.exit_code == 0, f"{words}: {done.output}"
        assert done.stdout.strip(), words


def test_one_question_is_expected(tmp_path):
    (tmp_path / "q.sql").write_bytes(b"\xef\xbb\xbf-- which?\nSELECT 1 AS one")
    (tmp_path / "image.sql").write_bytes(b"\x89PNG\xff")
    commit_iteration(store := Store.open(str(tmp_path / "store")))
    ask = ["sql", "--json", "--store", store.root]
    assert run([*ask, "--file", str(tmp_path / "q.sql")]).stdout == '{"one": 1}\n'
    assert run([*ask, "--file", "-"], input="-- which?\nSELECT 1 AS one").stdout == '{"one": 1}\n'
    for words in ([], ["FROM base", "--file", "q.sql"], ["--file", str(tmp_path / "image.sql")], ["--file", "/absent"]):
        assert re.search("one question is expected|can't be read", str(run([*ask, *words]).exception)), words


def test_the_evaluations_of_the_guide_are_of_tasks_that_the_run_was_trained_on():
    """Of a run as it is made without options: another world's tasks it has never seen, and solves none."""
    lines = commands((ROOT / "data/guide/commands.md").read_text(encoding="utf-8"))
    words = [shlex.split(line) for line in lines if line.startswith("r3l evaluate demo")]
    assert words
    for line in words:
        benchmark = line[line.index("--benchmark") + 1] if "--benchmark" in line else ""
        trained = compose(assignments=[f"evaluation.benchmark={benchmark}"])
        assert pose(trained).config.environment.kind == trained.environment.kind
