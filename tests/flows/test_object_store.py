"""Whole iterations with every table, lock and policy in an S3-speaking server: two machines, one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.policies import latest_policy
from r3l.store.policy_places import fetch_policy
from r3l.store.query import query
from r3l.store.stage import Store
from tests.flows.small import small_config
from tests.object_server import endpoint, make_bucket

__all__ = ["endpoint"]
pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.slow]


def ask(store: Store, sql: str) -> list[dict[str, Any]]:
    with connect(store) as connection:
        return query(connection, sql).to_pylist()


def test_one_machine_begins_a_run_and_another_goes_on(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.iterate import iterate
    from flows.replay import replay

    root = make_bucket(endpoint, "whole-iterations", tmp_path / "one", monkeypatch)
    first = iterate(small_config(root))
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "two"))
    second = iterate(small_config(root))
    store = Store.open(root)
    assert (first["iteration"], second["iteration"], store.next_iteration("small")) == (0, 1, 2)
    assert check_run(store, "small") == []
    [before, after] = ask(store, "SELECT policy, parent_policy, canary_error FROM updates ORDER BY iteration")
    assert after["parent_policy"] == before["policy"]
    assert 0 <= after["canary_error"] < 2e-3
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "three"))
    store, newest = Store.open(root), latest_policy(store, "small")
    assert newest is not None
    assert fetch_policy(store, *newest).is_relative_to(tmp_path / "three")
    result = replay("small", 1, from_stage="distilled", to_stage="training_rows", branch="same", store=root)
    assert all(row["same_rows"] for row in result["stages"] if row["replayed"])


def test_a_finished_iteration_is_found_there_and_a_killed_updates_leavings_are_swept(endpoint: str, tmp_path: Path,
                                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    from flows import workbench
    from flows.iterate import iterate

    root = make_bucket(endpoint, "found-again", tmp_path / "cache", monkeypatch)
    iterate(small_config(root))
    store = Store.open(root)
    stages = "SELECT stage, shard, digest, committed_at FROM stages ORDER BY ALL"
    before = ask(store, stages)
    monkeypatch.setattr(workbench.Workbench, "_start", lambda self: pytest.fail("an engine was started"))
    monkeypatch.setattr("flows.step.launch", lambda *arguments: pytest.fail("an update was launched"))
    left = store.run_folder("small") / ".staging" / "update-00000-dead" / "policy"
    left.mkdir(parents=True)
    iterate(small_config(root, iteration=0))
    assert ask(store, stages) == before
    assert not left.exists()
