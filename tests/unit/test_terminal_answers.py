"""Answers in the terminal: numbers to the right, wide rows as records, stories in colour; one rule for naming a run."""

import io

import pyarrow as pa
import pytest
from rich.text import Text
from typer.testing import CliRunner

from flows.cli.app import app_of
from flows.cli.options import the_run
from flows.cli.screen.answers import Record, rows_view, story
from flows.cli.screen.console import CleanConsole
from r3l import __version__
from r3l.errors import ConfigError
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

FOUND = pa.table({"name": ["a", "bb"], "loss": [0.5, 12.25], "n": [7, 123456]})


def printed(view, width=80):
    out = io.StringIO()
    CleanConsole(file=out, width=width).print(view)
    return out.getvalue()


def test_numbers_stand_to_the_right():
    lines = [line for line in printed(rows_view(FOUND, 80)).splitlines() if line.startswith("│")]
    assert lines == ["│ a    │   0.5 │      7 │", "│ bb   │ 12.25 │ 123456 │"]


def test_rows_wider_than_the_terminal_are_records():
    width = len("│ bb   │ 12.25 │ 123456 │")
    assert "row 1" not in printed(rows_view(FOUND, width), width)
    lines = printed(rows_view(FOUND, width - 1), width - 1).splitlines()
    assert [line.split() for line in lines[5:]] == [["name", "bb"], ["loss", "12.25"], ["n", "123456"]]
    assert "row 2 of 2" in lines[4]
    long = pa.table({"text": ["word " * 100]})
    assert "".join(printed(rows_view(long, 30), 30).split()).count("word") == 80  # a cell has 400 characters at most


@pytest.mark.parametrize("in_colour", [False, True])
@pytest.mark.parametrize("width", [20, 14, 12])
def test_a_record_is_drawn_as_a_table_of_rich_draws_it(width, in_colour):
    def drawn(view) -> str:
        out = io.StringIO()
        CleanConsole(file=out, width=width, force_terminal=in_colour).print(view)
        return out.getvalue()

    some = [[("loss", "0.5"), ("a name", " of two"), ("n", "")], [("n", "")], [("", ""), ("b", "x ")]]
    others = [[("n", "ü"), ("m", "12")], [("n", "a\tb")], [("n", "a\x1b[31mb")], [("n", "東京"), ("m", "12")]]
    for cells in (*some, *others):
        assert drawn(Record(cells)) == drawn(Record(cells).table())


def test_a_text_is_cut_only_where_there_is_no_room_for_it():
    long = pa.table({"reason": ["expected " * 8], "n": [3]})
    assert ("expected " * 8).strip() in printed(rows_view(long, 90), 90)
    assert "expected expec…" in printed(rows_view(long, 79), 79)


def test_an_answer_without_rows_shows_its_columns():
    assert "loss" in printed(rows_view(FOUND.slice(0, 0), 10), 40)


def test_of_many_rows_a_terminal_draws_the_first_and_the_last():
    many = pa.table({"n": range(100, 200), "of a long name": range(100)})
    lines = [line.split()[1] for line in printed(rows_view(many, 80, 4)).splitlines() if line.startswith("│")]
    assert lines == ["100", "101", "⋮", "198", "199"]
    assert [line for line in printed(rows_view(many, 10, 4)).splitlines() if "row" in line] == [
        f"─ row {number} of 100 ─" for number in (1, 2, 99, 100)
    ]
    assert "⋮" not in printed(rows_view(many, 80, 100))


def test_a_pipe_gets_every_row_and_a_terminal_is_told_how(root, monkeypatch):
    asked = ("sql", "FROM range(41) SELECT 1000 + range AS n, (SELECT count(*) FROM base) AS bases", "--store", root)
    piped = invoked(*asked)
    assert all(str(1000 + number) in piped for number in range(41))
    assert piped.splitlines()[-1] == "41 rows"
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda self: True)
    seen = invoked(*asked)
    assert "1019" in seen
    assert "1020" not in seen
    assert "41 rows, the first and last 20 of them shown: a pipe or --json has all" in " ".join(seen.split())


def test_a_story_has_signs_in_colour():
    lines = (
        "iteration=0/task=0/base=1  base of run a-1\n  credit       top: advantage -3 (mean 0.5)\n    turn   0  "
        "go  w·A +1e-3"
    )
    told = story(lines)
    assert isinstance(told, Text)
    assert told.plain == lines
    styled = {(told.plain[span.start : span.end], str(span.style)) for span in told.spans}
    assert {("-3", "red"), ("+1e-3", "green"), ("  credit ", "bold cyan")} <= styled
    assert not [text for text, style in styled if style in ("red", "green") and text not in ("-3", "+1e-3")]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> str:
    made = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(made)
    return made.root


def invoked(*words: str) -> str:
    done = CliRunner().invoke(app_of(words[:1]), words)
    return str(done.exception) if isinstance(done.exception, ConfigError) else done.output


@pytest.mark.parametrize("verb", ["check", "status", "export", "report", "track", "replay", "prune"])
def test_every_verb_that_works_on_a_run_takes_it_in_both_ways(verb, root):
    needed = {"replay": ["--iteration", "0"], "prune": ["--keep-last", "1"]}.get(verb, [])
    assert "two runs are named, 'a' and --run 'b'" in invoked(verb, "a", "--run", "b", *needed, "--store", root)
    assert "no run is named" in invoked(verb, *needed, "--store", root)


def test_a_run_is_named_once():
    assert [the_run("a", ""), the_run("", "a"), the_run("a", "a"), the_run("", "", "demo")] == ["a", "a", "a", "demo"]
    with pytest.raises(ConfigError, match="no run is named"):
        the_run("", "")


def test_a_run_is_found_as_argument_and_as_option(root):
    assert invoked("check", "demo", "--all", "--store", root) == invoked(
        "check", "--run", "demo", "--all", "--store", root
    )
    story_of = invoked("why", "iteration=0/task=0/base=0", "--store", root)  # the store's only run
    assert "base of run demo" in story_of
    assert story_of == invoked("why", "iteration=0/task=0/base=0", "--run", "demo", "--store", root)


def test_why_names_the_runs_to_choose_from(tmp_path):
    store = Store.open(str(tmp_path))
    assert "has no run" in invoked("why", "iteration=0/task=0/base=0", "--store", store.root)
    for run in ("one", "two"):
        commit_iteration(store, run)
    assert "--run is needed: the runs of" in (
        said := invoked("why", "iteration=0/task=0/base=0", "--store", store.root)
    )
    assert said.endswith("are one, two")


def test_version_prints_the_version():
    assert CliRunner().invoke(app_of(["runs"]), ["--version"]).output.split() == ["r3l", __version__]
