"""What a command prints ends well wherever it goes: into a pipe that is closed early, to a terminal that knows ASCII
alone, as JSON that every parser reads."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

ROOT = Path(__file__).parents[2]
LONG = "SELECT range, repeat('Â·é', 40) AS text FROM range(800)"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> str:
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store)
    return store.root


def shell(line: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which "$@" is r3l and its words."""
    command = ["bash", "-c", line, "bash", sys.executable, "-m", "flows.cli.app", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=60, env={"PATH": "/usr/bin:/bin", **environment}
    )


@pytest.mark.parametrize(
    ("reader", "words"),
    [("true", ["--help"]), ("head -c 9", ["sql", LONG]), ("head -c 9", ["sql", LONG, "--json"])],
    ids=["help", "table", "json"],
)
def test_output_that_nobody_reads_to_its_end_ends_the_command_quietly(reader, words, root):
    said = shell(f'"$@" | {reader} > /dev/null; exit ${{PIPESTATUS[0]}}', *words, R3L_STORE=root)
    assert said.stderr in ("", "800 rows\n")
    assert said.returncode in (0, 1)


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_ends_no_command(closed, root):
    said = shell(f'"$@" {closed}', "runs", R3L_STORE=root)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("words", [["sql", LONG + " LIMIT 2"], ["sql", "SELECT 'Â' FROM nowhere"]])
def test_a_terminal_that_knows_ascii_alone_gets_question_marks(words, root):
    said = shell('"$@"', *words, R3L_STORE=root, PYTHONIOENCODING="ascii")
    assert "Traceback" not in said.stderr
    assert "UnicodeEncodeError" not in said.stderr
    assert (said.stdout + said.stderr).isascii()
    assert said.returncode == (2 if "nowhere" in words[-1] else 0)


def test_json_has_no_number_that_json_lacks(root):
    question = "SELECT 'nan'::DOUBLE AS a, ['inf'::DOUBLE, 1] AS b, {'x': '-inf'::FLOAT} AS c, 0.5 AS d"
    said = CliRunner().invoke(app_of(["sql"]), ["sql", question, "--json", "--store", root])

    def refuse(text: str) -> None:
        raise AssertionError(text)

    assert json.loads(said.stdout, parse_constant=refuse) == {"a": None, "b": [None, 1.0], "c": {"x": None}, "d": 0.5}


def test_every_command_prints_json_through_the_one_function():
    for path in [*ROOT.glob("flows/**/cli/**/*.py"), *ROOT.glob("flows/lab/**/*.py")]:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        printed = [
            inner
            for call in calls
            if isinstance(call.func, ast.Name) and call.func.id in {"say", "print"}
            for inner in call.args
            if "json.dumps" in ast.unparse(inner)
        ]
        assert not printed or path.name == "console.py", f"{path}: prints JSON by itself; use say_json"
