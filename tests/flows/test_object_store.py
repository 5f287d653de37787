"""Iterations with every table, lock and policy in an S3-speaking server: one machine begins a run, others go on with
it."""

import pytest

from flows.replay import replay
from r3l.errors import StoreError
from r3l.store.check import check_run
from r3l.store.policies.places import fetch_policy
from r3l.store.policies.snapshots import latest_policy
from r3l.store.stage import Store
from tests.flows.corridor import corridor, iteration, two_tasks
from tests.support.answers import ask
from tests.support.object_server import endpoint, make_bucket

__all__ = ["corridor", "endpoint"]
pytestmark = pytest.mark.usefixtures("corridor")
STAGES = "SELECT branch, stage, shard, digest, committed_at FROM stages WHERE branch = '' ORDER BY ALL"


@pytest.mark.slow
def test_one_machine_begins_a_run_and_others_go_on(endpoint, tmp_path, monkeypatch):
    root = make_bucket(endpoint, "iterations", tmp_path / "one", monkeypatch)
    config = two_tasks(root, tmp_path, "training.learning_rate=0.01")
    iteration(config, Store.open(root), 0)

    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "two"))
    store = Store.open(root)
    found = iteration(config, store, store.next_iteration("demo"))
    first, second = ask(
        store, "SELECT policy, parent_policy, kl_start, kl_start_tokens FROM updates ORDER BY iteration"
    )
    assert found.learner.digest == second["parent_policy"] == first["policy"] != second["policy"]
    assert (first["kl_start"], first["kl_start_tokens"]) == (0.0, 0)
    assert second["kl_start"] > 0 < second["kl_start_tokens"]
    assert check_run(store, "demo") == []

    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "three"))
    store, newest = Store.open(root), latest_policy(Store.open(root), "demo")
    assert newest is not None
    assert newest[:2] == ("demo/policies/iteration=00001/policy", second["policy"])
    assert fetch_policy(store, newest.place, newest.policy).is_relative_to(tmp_path / "three")
    before = ask(store, STAGES)
    iteration(config, store, 1)  # all of it is found there
    same = replay.fn("demo", 1, from_stage="distilled", to_stage="training_rows", branch="same", store=root)
    assert all(row["same_settings"] and row["same_rows"] for row in same["stages"])
    assert ask(store, STAGES) == before
    assert (
        sorted(path.name for path in tmp_path.joinpath("three").rglob("*.parquet")) == []
    )  # tables are read from there


def test_two_machines_do_not_write_one_iteration(endpoint, tmp_path, monkeypatch):
    root = make_bucket(endpoint, "locked", tmp_path / "one", monkeypatch)
    config = two_tasks(root, tmp_path)
    with Store.open(root).writer_lock("demo", "", 0), pytest.raises(StoreError, match="held by"):
        iteration(config, Store.open(root), 0)
    assert Store.open(root).runs() == []
