"""Nothing that a model, a page or a user can write acts on the terminal: every text goes through one function."""

import ast
import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from flows.cli.app import app_of
from flows.cli.screen.console import CleanConsole
from flows.cli.screen.display import Display, row
from flows.cli.screen.figures import result
from r3l.errors import StoreError
from r3l.exploration.progress import Progress
from r3l.pipeline.logs import log_line
from r3l.pipeline.summary import OF_BASES
from r3l.records import Event
from r3l.store.stage import Store
from r3l.system.visible import VisibleRecord
from tests.support.store_iteration import commit_iteration

HOSTILE = "[/x] [red]b[/red] \x1b]0;title\x07 \x1b[2J \x9b31m \u202egnp :boom: \ud800"
SHOWN = "[/x] [red]b[/red] ⟨U+001B⟩]0;title⟨U+0007⟩ ⟨U+001B⟩[2J ⟨U+009B⟩31m ⟨U+202E⟩gnp :boom: ⟨U+D800⟩"


def times_shown(said: str) -> int:
    """How often; rich leaves a bell out of its own texts."""
    return said.replace("⟨U+0007⟩", "").count(SHOWN.replace("⟨U+0007⟩", ""))


def printed(view, **options):
    out = io.StringIO()
    CleanConsole(file=out, width=300).print(view, **options)
    return out.getvalue()


def table() -> Table:
    made = Table(HOSTILE, title=HOSTILE)
    made.add_row(HOSTILE)
    made.add_row(Text(HOSTILE))
    return made


@pytest.mark.parametrize(
    ("view", "times"),
    [(HOSTILE, 1), (Text(HOSTILE), 1), (table(), 4), (Rule(HOSTILE), 1), (Panel(HOSTILE, title=Text(HOSTILE)), 2)],
    ids=["string", "text", "table", "rule", "panel"],
)
def test_a_console_shows_text_as_text(view, times):
    said = printed(view)
    assert times_shown(said) == times
    assert not set(said) & set("\x1b\x07\x9b\u202e\ud800")


def test_the_live_panel_and_the_result_show_names_as_they_are():
    display = Display(CleanConsole(file=io.StringIO(), width=300), f"r3l · run {HOSTILE}", Progress())
    display.phase = HOSTILE
    said = printed(display)
    assert times_shown(said) == 1  # the title; the phase is broken into lines
    assert said.count("⟨U+001B⟩") == 4
    assert "\x1b" not in said
    out = io.StringIO()
    console = CleanConsole(file=out, width=300)
    summary = {
        "run": HOSTILE, "iteration": 0, "store": HOSTILE, "stages": {HOSTILE: 1.0}, "trackers": {"t": HOSTILE},
        "no_step": HOSTILE, "branch": "",
    }  # fmt: skip
    result(console, summary)
    assert times_shown(out.getvalue()) == 5 + 2 * len(
        OF_BASES
    )  # stage, tracker, no step, store, its run; run and store of a command
    assert row("base", {"done": 1, "planned": 1}, 1)[0] == "base"


def test_lines_of_the_log_and_their_tracebacks():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    line = VisibleRecord("r3l.store", logging.WARNING, "f", 1, "%s left out", (HOSTILE,), None)
    handler.handle(line)
    try:
        raise StoreError(HOSTILE)
    except StoreError:
        handler.handle(VisibleRecord("r3l.store", logging.ERROR, "f", 1, "it ended", (), sys.exc_info()))
    assert out.getvalue().count(SHOWN) == 2
    assert "\x1b" not in out.getvalue()
    plain = VisibleRecord("uvicorn.access", logging.INFO, "f", 1, "%s %d", ("GET /", 200), None)
    assert plain.args == ("GET /", 200)  # its formatter takes them apart
    assert (
        VisibleRecord("r3l", logging.INFO, "f", 1, "%d", ("no number",), None).msg == "%d"
    )  # the handler complains, not the caller


def test_reasons_in_a_stage_s_line_of_the_log():
    events = [Event(0, "reflections", "x", "invalid", HOSTILE)]
    line = VisibleRecord("r3l.pipeline", logging.INFO, "f", 1, log_line("reflections", {"events": events}), (), None)
    assert SHOWN in line.getMessage()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(made)
    return made


def test_a_cell_of_sql_is_shown_as_it_is(store):
    query = "SELECT '[/x]' AS a, '[red]b' AS \"[/y]\", chr(27) || '[2J' AS c"
    app = app_of(["sql", "runs"])
    run = CliRunner()
    done = run.invoke(app, ["sql", query, "--store", store.root])
    assert done.exit_code == 0, done.output
    assert all(text in done.stdout for text in ("[/x]", "[red]b", "[/y]", "⟨U+001B⟩[2J"))
    assert "\x1b" not in done.output
    (line,) = run.invoke(app, ["sql", query, "--store", store.root, "--json"]).stdout.splitlines()
    assert json.loads(line)["c"] == "\x1b[2J"


def test_a_message_of_an_error_is_shown_as_it_is(store):
    command = [sys.executable, "-m", "flows.cli.app", "why", "x\x1b[2J[/x]", "--store", store.root]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "⟨U+001B⟩[2J[/x]" in done.stderr, "\x1b" in done.stderr) == (2, True, False)


def test_every_command_prints_by_the_console_of_ours():
    root = Path(__file__).parents[2]
    allowed = {root / "flows/cli/screen/console.py", root / "r3l/training/__main__.py", root / "r3l/lab/study/again.py",
               root / "r3l/engines/vllm/launch/serve.py"}  # the last one runs in vLLM's environment  # fmt: skip
    for path in {*root.glob("flows/**/*.py"), *root.glob("r3l/**/*.py")} - allowed:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in {"print", "Console", "typer.echo", "typer.secho", "click.echo", "rich.print"}, (
                    f"{path}: {name}"
                )
                assert not name.endswith("from_markup"), path
