"""A store of several runs: questions about one open no file of another, and the front page asks again only what
changed."""

import re
import shutil
from pathlib import Path

import pytest

from r3l.audit.lines import Line, iterations
from r3l.audit.overview import Overview
from r3l.audit.reader import KEPT, Reader
from r3l.store import figures
from r3l.store.catalog import connect
from r3l.store.index import blocks
from r3l.store.index.blocks import Indexed
from r3l.store.index.cached import index_path
from r3l.store.stage import Store
from tests.support.store_iteration import commit_evaluation, commit_iteration, commit_stage, iteration_tables


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
        looked_then.append([*looked])
        return ask(store, some, questions, left_out)

    look, looked, looked_then = figures.index_run, list[str](), list[list[str]]()

    def noted_look(store: Store, run: str) -> Indexed:
        looked.append(run)
        return look(store, run)

    monkeypatch.setattr(figures, "TOGETHER", 2)
    monkeypatch.setattr(figures, "ask_runs", noted)
    monkeypatch.setattr(figures, "index_run", noted_look)
    page = Overview(store)
    first, left_out = page.rows()
    assert left_out == {}
    assert asked == [["one", "three"], ["two"]]
    assert looked_then[0] == ["one", "three"]  # a store of many runs is not held at once
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


@pytest.fixture
def long(store, monkeypatch) -> Store:
    """A run of three iterations in three blocks, with a branch and evaluations."""
    for iteration in (1, 2):
        commit_iteration(store, "two", iteration=iteration)
    for iteration in (-1, 2):
        commit_evaluation(store, iteration, 0, "household/heldout", 20, 10 + iteration, "two")
    monkeypatch.setattr(blocks, "BLOCK", 2)
    return store


def all_of(store: Store) -> list:
    page = Overview(store)
    rows, left_out = page.rows()
    assert left_out == {}
    return [rows, *(page.line(Line("two", branch)) for branch in ("", "fork"))]


def test_a_long_run_is_asked_by_blocks_and_says_the_same(long, tmp_path, monkeypatch):
    by_blocks = all_of(long)
    assert by_blocks[1][0]["past"][2]["evaluation_success"] == 0.6
    assert len(by_blocks[1][0]["past"]) == 3
    monkeypatch.setattr(blocks, "BLOCK", 25)
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "another"))
    monkeypatch.setattr(figures, "left_behind", lambda blocks: [])
    assert all_of(long) == by_blocks
    reader = Reader(long, ["two"])
    assert iterations(reader, Line("two")) == [
        {name: row[name] for name in row if name in iterations(reader, Line("two"))[0]}
        for row in by_blocks[1][0]["past"]
    ]
    reader.close()


@pytest.mark.parametrize("kept", ["stale", "torn"])
def test_a_block_whose_kept_answers_are_no_more_true_is_asked_again(long, kept, monkeypatch):
    before, _ = Overview(long).line(Line("two"))
    path = index_path(long, "two", "line").with_suffix("") / "0.json"
    if kept == "stale":
        rows = iteration_tables(1)["updates"]["updates"]
        shutil.rmtree(Path(long.root, "two/iteration=00001/updates"))
        commit_stage(long, "updates", {"updates": [rows[0] | {"entropy": 7.0}]}, [], "two", 1)
    else:
        path.write_bytes(path.read_bytes().replace(b'"base_reward":0.25', b'"base_reward":0.75', 1))
    asked, ask = [], figures.ask_runs
    monkeypatch.setattr(figures, "ask_runs", lambda store, some, *how: asked.append(some) or ask(store, some, *how))
    after, _ = Overview(long).line(Line("two"))
    assert len(asked) == 1
    assert [row["entropy"] for row in after["past"]] == [2.0, 7.0 if kept == "stale" else 2.0, 2.0]
    assert (after == before) == (kept == "torn")


def test_damage_in_a_block_that_was_left_behind_is_told(long):
    assert Overview(long).line(Line("two"))[1] == {}
    shutil.rmtree(Path(long.root, "two/iteration=00000/base"))
    row, left_out = Overview(long).line(Line("two"))
    assert "without 1 damaged stages (two/iteration=00000/base" in left_out["two"]
    assert [past["base_reward"] for past in row["past"]] == [None, 0.25, 0.25]


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
