"""A store of several runs: questions about one open no file of another, and the front page asks again only what
changed."""

import re
from pathlib import Path

import pytest

from r3l.audit.lines import Line, iterations
from r3l.audit.overview import Overview
from r3l.audit.reader import KEPT, Reader
from r3l.store import figures
from r3l.store.catalog import connect
from r3l.store.index.blocks import Indexed
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(str(tmp_path / "branch=odd" / "iteration=00001"))  # a root that reads like a part of the layout
    for run in ("one", "two", "three"):
        commit_iteration(store, run)
    commit_stage(store, "credit", iteration_tables(0)["credit"], [], "two", 0, branch="fork", alpha=5)
    return store


def test_a_table_is_one_scan_whatever_number_of_runs(store):
    views = dict(
        connect(store).execute("SELECT view_name, sql FROM duckdb_views() WHERE schema_name = 'lines'").fetchall()
    )
    assert views["credit"].count("read_parquet(") == 1
    rows = (
        connect(store).execute("SELECT run, branch, count(*) FROM stored.credit GROUP BY ALL ORDER BY ALL").fetchall()
    )
    assert rows == [("one", "", 6), ("three", "", 6), ("two", "", 6), ("two", "fork", 6)]


def test_a_question_about_a_run_opens_no_file_of_another(store):
    question = "EXPLAIN ANALYZE SELECT count(*) FROM lines.turns WHERE run = 'two' AND branch = ''"
    ((_, plan),) = connect(store).execute(question).fetchall()
    assert re.search(r"Scanning Files: (\S+)", plan)[1] == "3/9"  # base, retries and distilled, of one run in three


def test_the_front_page_asks_again_only_what_changed(store, monkeypatch):
    asked: list[list[str]] = []
    ask = figures.ask_runs

    def noted(store: Store, some: list[Indexed], questions: dict[str, str], left_out: dict[str, str]):
        asked.append([index.run for index in some])
        return ask(store, some, questions, left_out)

    monkeypatch.setattr(figures, "TOGETHER", 2)
    monkeypatch.setattr(figures, "ask_runs", noted)
    page = Overview(store)
    first, left_out = page.rows()
    assert left_out == {}
    assert asked == [["one", "three"], ["two"]]
    assert [str(row["line"]) for row in first] == ["two", "two/fork", "three", "one"]  # the newest run first
    assert [[past["base_reward"] for past in row["past"]] for row in first] == [[0.25]] * 4
    assert page.rows() == (first, {})
    assert len(asked) == 2
    commit_iteration(store, "one", iteration=1)
    assert [(str(row["line"]), len(row["past"])) for row in page.rows()[0]] == [
        ("one", 2),
        ("two", 1),
        ("two/fork", 1),
        ("three", 1),
    ]
    assert asked[2:] == [["one"]]


def test_readers_of_a_run_are_kept_and_the_oldest_let_go(store):
    reader = Reader(store)
    assert reader.of("one") is reader.of("one")
    assert reader.of("one").of("one") is reader.of("one")
    assert [row["iteration"] for row in iterations(reader, Line("two", "fork"))] == [0]
    first = reader.of("one")
    for number in range(KEPT):
        reader.of(f"other{number}")
    assert reader.of("one") is not first
    reader.close()
