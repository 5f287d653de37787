"""The replay stage over stored iterations: what is drawn, how often, and whose policies the update needs for it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from r3l.config import compose
from r3l.pipeline.stages import replay_buffer
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage


def bench(store, iteration, *assignments):
    config = compose(run="demo", assignments=["training.sync_interval=2", *assignments])
    return SimpleNamespace(
        config=config,
        store=store,
        iteration=iteration,
        policies=SimpleNamespace(start=SimpleNamespace(digest="p0", path="start")),
    )


@pytest.fixture
def store(tmp_path):
    """Three iterations; in each only the group of task 0 has training rows (five of them)."""
    store = Store.open(str(tmp_path))
    for iteration in range(3):
        commit_iteration(store, iteration=iteration)
    return store


def replay(store, iteration, fresh, *assignments):
    tables = replay_buffer.replay_tables(bench(store, iteration, *assignments), fresh)
    ref = commit_stage(store, "replay", tables, [], "demo", iteration)
    return tables, ref


def test_the_first_iteration_has_nothing_to_replay(store):
    assert replay_buffer.replay_tables(bench(store, 0), 2) == {"training_rows": [], "replay": []}
    assert replay_buffer.history(bench(store, 0)) == []


def test_groups_come_back_until_they_are_used_up(store):
    def drawn(iteration):
        return [
            (one.source_iteration, one.age, one.uses, one.priority, one.rows)
            for one in replay(store, iteration, 1)[0]["replay"]
        ]

    assert drawn(1) == [(0, 1, 2, 0.5, 5)]
    assert drawn(2) == [(1, 1, 2, 0.5, 5)]
    commit_iteration(store, iteration=3)
    assert [one[0] for one in drawn(3)] == [2]
    both = replay_buffer.replay_tables(bench(store, 4), 9)["replay"]
    assert [(one.source_iteration, one.uses) for one in both] == [(3, 2), (2, 3), (1, 3), (0, 3)]
    assert [
        one.source_iteration
        for one in replay_buffer.replay_tables(bench(store, 4, "training.replay_limit=2"), 9)["replay"]
    ] == [3]
    assert replay_buffer.replay_tables(bench(store, 4, "training.replay_share=0"), 9)["replay"] == []


def test_replayed_rows_are_this_iterations_and_the_store_checks_out(store):
    tables, ref = replay(store, 2, 2)
    rows = tables["training_rows"]
    assert {(row.iteration, row.role) for row in rows} == {(2, "replay")}
    assert len({row.row_id for row in rows}) == len(rows) == 10
    assert {row.group_id for row in rows} == {"iteration=0/task=0", "iteration=1/task=0"}
    connection = connect(store)
    assert connection.execute(
        "SELECT role, count(*) FROM training_rows WHERE iteration = 2 GROUP BY ALL ORDER BY ALL"
    ).fetchall() == [("explore", 3), ("reflect", 1), ("replay", 10), ("retry", 1)]
    assert check_run(store, "demo") == []
    assert replay_buffer.behaviours(bench(store, 2), ref) == {"p0": "start"}


def test_the_policies_of_replayed_rows_are_found_by_their_digest(store):
    """The rows of iteration 1 were sampled by p1, which the update of iteration 0 wrote."""
    tables = replay_buffer.replay_tables(bench(store, 2), 1)
    records = [replace(row, behaviour_policy="p1") for row in tables["training_rows"]]
    ref = commit_stage(store, "replay", {"training_rows": records, "replay": tables["replay"]}, [], "demo", 2)
    assert replay_buffer.behaviours(bench(store, 2), ref) == {"p1": f"{store.root}/demo/policies/iteration=00000"}
