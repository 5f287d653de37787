"""Views over what manifests name, counted by hand from tests/support/store_iteration.py."""

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest

from infra.pages.dictionary import dictionary
from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.query import connect_for_users
from r3l.store.stage import Store
from r3l.store.tables.schemas import PLACE, TABLES
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables

TASKS = "SELECT run, count(*) FROM tasks GROUP BY ALL"


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store.open(str(tmp_path))
    commit_iteration(store)
    return store


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Of a store that no test changes."""
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store)
    with connect(store) as connection:
        yield connection


def ask(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple]:
    return connection.execute(sql).fetchall()


def test_an_empty_store_has_every_view_with_its_columns(tmp_path):
    connection = connect(Store.open(str(tmp_path)))
    for table, columns in TABLES.items():
        cursor = connection.execute(f"SELECT * FROM {table}")
        assert [entry[0] for entry in cursor.description] == [column.name for column in (*PLACE, *columns)]
        assert cursor.fetchall() == []
    for view in ("base", "retries", "distilled", "pivots", "groups", "iterations", "account", "stages"):
        assert connection.execute(f"SELECT * FROM {view}").fetchall() == []


def test_tables_have_their_rows_and_their_place(whole):
    assert ask(whole, "SELECT run, branch, iteration, shard, count(*) FROM turns GROUP BY ALL") == [
        ("demo", "", 0, 0, 12 + 3 + 6)
    ]
    assert ask(whole, "SELECT shard, count(*) FROM updates GROUP BY ALL") == [(None, 1)]
    assert ask(whole, "SELECT kind, count(*) FROM trajectories GROUP BY ALL ORDER BY ALL") == [
        ("base", 4),
        ("distilled", 2),
        ("retry", 2),
    ]


def test_a_path_is_no_pattern(tmp_path):
    """Whatever characters it has, the tables are those of its own store, not of a neighbour that it would match."""
    names = ["a[1]", "a1", "a*", "a?", "a[[]1]", "{a,b}", "it's", "a#1", "a%31", "a\\1"]
    for number, name in enumerate(names):
        store = Store.open(str(tmp_path / name))
        commit_stage(store, "tasks", iteration_tables(0)["tasks"], [], f"run{number}", 0)
    for number, name in enumerate(names):
        with connect_for_users(Store.open(str(tmp_path / name)), question=TASKS) as connection:
            assert connection.execute(TASKS).fetchall() == [(f"run{number}", 2)]
    store = Store.open(str(tmp_path / "a\\*"))
    commit_stage(store, "tasks", iteration_tables(0)["tasks"], [], "run", 0)
    with pytest.raises(StoreError, match="backslash"):
        connect(store)


def test_pivots_put_the_whole_story_in_one_row(whole):
    columns = "base_id, reflection_id, distilled_id, pivot_turn, base_reward, retry_reward, gain, outcome"
    rows = ask(whole, f"SELECT {columns} FROM pivots ORDER BY task")
    first, second = "iteration=0/task=0/base=0", "iteration=0/task=1/base=1"
    assert rows == [
        (first, f"{first}/reflection=0", "iteration=0/task=0/distilled=0", 1, 0.0, 1.0, 1.0, "failure"),
        (second, f"{second}/reflection=0", "iteration=0/task=1/distilled=0", 2, 0.0, 0.0, 0.0, "failure"),
    ]


def test_an_iteration_is_one_row_of_figures(whole):
    found = whole.sql("SELECT * FROM iterations").to_arrow_table().to_pylist()[0]
    assert (
        found
        | {
            "tasks": 2,
            "bases": 4,
            "base_reward": 0.25,
            "reflections": 4,
            "parse_rate": 0.75,
            "retries": 2,
            "retry_improvement": 0.5,
            "retry_improvement_failed": 0.5,
            "reward_gain": 0.5,
            "pivot_mean": 1.5,
            "pivot_fraction": 0.5,
            "groups": 2,
            "mixed_groups": 1,
            # explore: 4 (masked base) + 6 + 4 (masked distilled); reflect 2; retry 4. Sequences: 15 + 15 + 15 + 5 + 17.
            "training_rows": 5,
            "trained_tokens": 20,
            "sequence_tokens": 67,
            "loss": 0.5,
            "grad_norm": 1.5,
            "entropy": 2.0,
            "step": 1,
            "policy": "p1",
            "stage_seconds": 9.0,
        }
        == found
    )


def test_groups_weigh_what_credit_made_of_them(whole):
    columns = "members, bases, distilled, reward_mean, mixed, positive_mass, round(negative_mass, 6)"
    rows = ask(whole, f"SELECT {columns} FROM groups ORDER BY task")
    assert rows == [(3, 2, 1, pytest.approx(2 / 3), True, 6.0, 1.154701), (3, 2, 1, 0.0, False, 0.0, 0.0)]


def test_the_account_balances(whole):
    rows = ask(whole, "SELECT stage, attempts, trained, led_on, dropped, unaccounted FROM account ORDER BY stage")
    assert rows == [
        ("base", 4, 2, 0, 2, 0),
        ("distilled", 2, 1, 0, 1, 0),
        ("reflections", 4, 1, 1, 2, 0),
        ("retries", 2, 1, 1, 0, 0),
    ]


def test_a_question_has_the_tables_as_they_are_stored_where_it_names_them(store):
    made = "SELECT schema_name, view_name FROM duckdb_views() WHERE schema_name IN ('stored', 'lines') ORDER BY ALL"
    for question, schemas in (("FROM turns", ["lines"]), ("FROM stored.turns", ["lines", "stored"])):
        with connect(store, question=question) as connection:
            assert connection.execute(made).fetchall() == [(schema, "turns") for schema in schemas]
            assert connection.execute(question).fetchall()


def test_a_branch_sees_what_it_took_over_beside_what_it_made(store):
    tables = iteration_tables(0)["credit"]
    commit_stage(store, "credit", tables, [], "demo", 0, branch="alpha", alpha=1.0)
    connection = connect(store)
    counted = "SELECT branch, count(*) FROM {} GROUP BY ALL ORDER BY ALL"
    assert connection.execute(counted.format("stored.trajectories")).fetchall() == [("", 8)]
    assert connection.execute(counted.format("stored.credit")).fetchall() == [("", 6), ("alpha", 6)]
    assert connection.execute(counted.format("lines.pivots")).fetchall() == [("", 2), ("alpha", 2)]
    figures = "SELECT branch, base_reward, mixed_groups, training_rows FROM {}iterations"
    assert connection.execute(figures.format("lines.")).fetchall() == [("", 0.25, 1, 5), ("alpha", 0.25, 1, None)]
    # a plain name counts nothing twice: it shows the run itself or, where it is asked for, the branch
    assert connection.execute(counted.format("pivots")).fetchall() == [("", 2)]
    assert connection.execute(figures.format("")).fetchall() == [("", 0.25, 1, 5)]
    assert connect(store, branch="alpha").execute(figures.format("")).fetchall() == [("alpha", 0.25, 1, None)]


def test_runs_are_kept_apart(store):
    commit_iteration(store, run="other")
    assert connect(store, ["other"]).execute("SELECT DISTINCT run FROM turns").fetchall() == [("other",)]
    assert ask(connect(store), "SELECT run, count(*) FROM pivots GROUP BY ALL ORDER BY ALL") == [
        ("demo", 2),
        ("other", 2),
    ]


def test_the_dictionary_is_what_the_code_makes(request):
    page = request.config.rootpath / "data" / "README.md"
    assert page.read_text() == dictionary(), "run: python -m infra.pages.dictionary > data/README.md"


def test_a_branch_of_a_branch_sees_through_to_the_run(store):
    """`alpha` was forked from the run at credit, `deep` from alpha at training_rows: deep has alpha's credit and the
    run's bases."""
    tables = iteration_tables(0)
    credit = [replace(row, advantage=9.0) for row in tables["credit"]["credit"]]
    forked = commit_stage(store, "credit", {"credit": credit}, store.stages("demo")[4:5], "demo", 0, branch="alpha")
    commit_stage(store, "training_rows", tables["training_rows"], [forked], "demo", 0, branch="deep")
    connection = connect(store)
    assert connection.execute("SELECT DISTINCT advantage FROM lines.credit WHERE branch = 'deep'").fetchall() == [
        (9.0,)
    ]
    assert connection.execute("SELECT count(*) FROM lines.base WHERE branch = 'deep'").fetchall() == [(4,)]
    assert connection.execute("SELECT count(*) FROM lines.updates WHERE branch = 'deep'").fetchall() == [(0,)]
    assert store.branches("demo") == ["alpha", "deep"]
