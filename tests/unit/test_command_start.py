"""What a command loads and opens: `r3l --help` lists the commands without loading one, and a question costs its own
files."""

import inspect
import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from flows.cli import app
from r3l.audit import terminal
from r3l.audit.reader import Reader
from r3l.errors import Interrupted, StoreError
from r3l.store.catalog import ALL, MACROS, STORED, connect, names_needed
from r3l.store.index import blocks
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, iteration_tables

ROOT = Path(__file__).parents[2]
LOADED = """
import sys
from flows.cli.app import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print()
print(*sorted({module for name in sys.modules for module in (name, name.partition(".")[0])}))
"""
NEVER = {"prefect", "torch", "transformers", "pandas"}


def loaded(*words: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it has loaded when it is done."""
    done = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout, set(done.stdout.splitlines()[-1].split())


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> str:
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    for iteration in range(4):
        commit_iteration(store, "demo", iteration=iteration)
    return store.root


def test_the_list_of_commands_begins_with_those_of_every_day_and_loads_none():
    printed, modules = loaded("--help")
    commands = re.findall(r"^│ ([a-z][a-z-]*) {2,}", printed, re.MULTILINE)
    assert commands[:6] == ["iterate", "train", "status", "audit", "sql", "evaluate"]
    assert set(app.PLACES) <= set(commands)
    assert not modules & {*NEVER, "duckdb", "pyarrow", "numpy", "pydantic", "r3l.store", "r3l.config"}


@pytest.mark.parametrize("words", [("sql", "SELECT count(*) FROM base"), ("runs",), ("status", "demo")], ids=str)
def test_a_reading_command_loads_no_settings(words, root):
    assert not loaded(*words, "--store", root)[1] & {*NEVER, "jinja2", "r3l.config", "r3l.environments", "r3l.engines"}


def test_every_command_is_described_as_it_is_written():
    for name in app.PLACES:
        assert inspect.getdoc(app.help_only(name)) == inspect.getdoc(app.function(name)), name


def printed(root: str) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(terminal.status(Store.open(root, reading=True), "demo"))
    return out.getvalue()


def opened(root: str, newest: int | None) -> set[str]:
    """The iterations that a reader may open files of."""
    reader = Reader(Store.open(root, reading=True), ["demo"], newest=newest)
    try:
        contents = reader.snapshot().contents
        return {Path(part.path).parts[1] for part in (*contents.own, *contents.taken_over)}
    finally:
        reader.close()


@pytest.mark.parametrize("block", [1, 3, 25])
def test_status_opens_its_newest_iterations_however_long_the_run_is_and_says_the_same(root, monkeypatch, block):
    monkeypatch.setattr(blocks, "BLOCK", block)
    assert len(opened(root, None)) == 4
    assert opened(root, terminal.SHOWN) == {"iteration=00002", "iteration=00003"}
    said = printed(root)
    assert "iteration 3, done" in said
    monkeypatch.setattr(terminal, "Reader", lambda store, runs, newest: Reader(store, runs))
    assert printed(root) == said


@pytest.mark.parametrize(("question", "names"), [
    ("SELECT 1", set()),
    ("FROM left_out", set()),
    ("SELECT count(*) FROM stages", {"stages"}),
    ("SELECT count(*) FROM base", {"base", "base_trajectories"}),
])  # fmt: skip
def test_a_question_makes_what_it_names(question, names):
    assert names_needed(question) == names


def files_of(store: Store, view: str) -> list[str]:
    with connect(store) as connection:
        (sql,) = connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = ?", [view]).fetchone()
    return re.findall(r"demo/iteration=\d+/(\w+)/", sql)


def test_a_question_about_bases_opens_the_retries_of_a_task_only_where_they_hold_a_base(tmp_path):
    """An extra base is sampled in place of a retry."""
    store = Store.open(str(tmp_path))
    commit_iteration(store, "demo")
    assert files_of(store, "base_trajectories") == ["base"]
    assert files_of(store, "retry_trajectories") == ["retries"]
    tables = iteration_tables(1)
    tables["retries"]["trajectories"][0] = replace(tables["retries"]["trajectories"][0], kind="base")
    commit_iteration(store, "demo", 1, tables)
    assert files_of(store, "base_trajectories") == ["base", "base", "retries"]
    with connect(store) as connection:
        assert connection.execute("SELECT iteration, count(*) FROM base GROUP BY ALL ORDER BY ALL").fetchall() == [
            (0, 4),
            (1, 5),
        ]


def test_what_a_view_is_made_of_is_made_too(root):
    """The figures of iterations rest on nearly every table and on the stages; a view alone answers as it does beside
    all others."""
    store = Store.open(root, reading=True)
    assert {"stages", "base", "updates"} <= names_needed("FROM iterations")
    with connect(store) as everything:
        for name in sorted(ALL - {MACROS} - STORED.keys()):
            question = f"SELECT count(*) FROM lines.{name}"
            with connect(store, question=question) as alone:
                assert alone.execute(question).fetchall() == everything.execute(question).fetchall(), name


@pytest.mark.parametrize(("error", "status", "said"), [
    (RuntimeError("Query interrupted"), 130, "ended: Query interrupted\n"),
    (Interrupted("the run was cancelled"), 130, "ended: the run was cancelled\n"),
    (StoreError("no such run"), 2, "error: no such run\n"),
    (ValueError("x"), 3, "error: ValueError: x (--debug shows where)\n"),
])  # fmt: skip
def test_an_end_is_one_line_and_an_exit_code(error, status, said, monkeypatch, capsys):
    """Whatever extensions have to say of their memory at the exit of an interpreter: it is left, not torn down."""
    leaving = SimpleNamespace(status=None)
    monkeypatch.setattr(app, "Leaving", lambda: leaving)

    def fail():
        raise error

    monkeypatch.setattr(app, "command", fail)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == leaving.status == status
    assert capsys.readouterr().err == said
