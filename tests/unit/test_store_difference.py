"""`diff` proves an unchanged replay by digests, and says what a changed one changed."""

from dataclasses import replace

import pytest

from r3l.errors import StoreError
from r3l.store import stage as committing
from r3l.store.differences.difference import diff
from r3l.store.layout import StageRef
from r3l.store.stage import Store
from tests.support.store_iteration import Tables, commit_iteration, commit_stage, iteration_tables


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store.open(str(tmp_path))
    commit_iteration(store)
    return store


def fork(store: Store, branch: str, tables: dict[str, Tables], **settings: object) -> None:
    """Replay credit and training rows from the run's distilled trajectories."""
    parents: list[StageRef] = [ref for ref in store.stages("demo") if ref.stage == "distilled"]
    for stage in ("credit", "training_rows"):
        parents = [commit_stage(store, stage, tables[stage], parents, "demo", 0, branch=branch, **settings)]


def test_an_unchanged_replay_proves_itself(store):
    fork(store, "same", iteration_tables(0))
    found = diff(store, "demo", 0, "", "same")
    stages = [(row["stage"], row["same_settings"], row["same_rows"]) for row in found.stages]
    assert stages == [("credit", True, True), ("training_rows", True, True)]
    assert found.proven
    assert (found.settings, found.advantages["changed"], found.rows["other_weights"]) == ([], 0, 0)
    assert (found.rows["both"], found.rows["only_a"], found.rows["only_b"]) == (5, [], [])
    assert str(found).endswith("made again (credit, training_rows) came out with equal digests")


def test_nothing_is_proven_of_what_was_not_made_again(store):
    (distilled,) = (ref for ref in store.stages("demo") if ref.stage == "distilled")
    credit = iteration_tables(0)["credit"]
    commit_stage(store, "credit", credit, [distilled], "demo", 0, branch="short")
    assert str(diff(store, "demo", 0, "", "short")).endswith("made again (credit) came out with equal digests")
    commit_stage(store, "credit", credit, [distilled], "demo", 0, shard=1)
    found = diff(store, "demo", 0, "", "short")
    assert [(row["shard"], row["same_rows"]) for row in found.stages] == [(0, True), (1, False)]
    assert not found.proven
    commit_stage(store, "updates", iteration_tables(0)["updates"], [], "demo", 0, branch="step")
    assert not diff(store, "demo", 0, "", "step").proven


def test_a_changed_replay_says_what_changed(store):
    tables = iteration_tables(0)
    credit, rows = tables["credit"]["credit"], tables["training_rows"]["training_rows"]
    credit[1], credit[2] = replace(credit[1], advantage=1.0), replace(credit[2], advantage=-1.0)
    rows[0] = replace(rows[0], weights=[0.0] * 15, trained_tokens=0)
    dropped = rows.pop(3)
    rows.append(replace(rows[1], row_id="more"))
    fork(store, "alpha-1", tables, alpha=1, scale={"by": "std"})
    found = diff(store, "demo", 0, "", "alpha-1")
    assert not found.proven
    assert found.settings == [
        {"stage": stage, "setting": name, "a": None, "b": value}
        for stage in ("credit", "training_rows")
        for name, value in (("alpha", 1), ("scale.by", "std"))
    ]
    assert found.advantages == {"changed": 2, "members": 6, "largest": 4.0, "mean": 1.0, "turned": 1}
    assert found.rows == {
        "only_a": [dropped.row_id], "only_b": ["more"], "both": 4, "other_tokens": 0, "other_weights": 1,
        "other_advantage": 0, "trained_a": 20, "trained_b": 20 - 4 - 2 + 6,
    }  # fmt: skip
    figures = {row["name"]: (row["a"], row["b"]) for row in found.figures}
    assert "trained_tokens" not in figures
    assert "loss" not in figures  # of a stage that the branch doesn't have
    assert (found.only_a, found.only_b) == (["updates"], [])
    assert "  not replayed   updates" in str(found).splitlines()
    assert "none" not in str(found)
    assert "advantages     2 of 6 changed, by 1 in the mean and 4 at most; 1 change sign" in str(found)
    assert "training rows  4 in both, 1 in, 1 out" in str(found)


def test_another_machine_is_named_first_and_once(store, monkeypatch):
    here = committing.this_machine()
    monkeypatch.setattr(committing, "this_machine", lambda: {**here, "processor": "another", "gpus": "H9"})
    fork(store, "elsewhere", iteration_tables(0))
    found = diff(store, "demo", 0, "", "elsewhere")
    lines = str(found).splitlines()
    assert lines[1:3] == [
        f"  another machine, from credit on: gpus H9 (was {here['gpus'] or 'none'})",
        f"  another machine, from credit on: processor another (was {here['processor']})",
    ]
    assert len(found.machines) == 2
    assert found.proven  # the rows are equal all the same


def test_what_was_not_made_is_named(store):
    with pytest.raises(StoreError, match="branch 'none' made nothing; it has no branches"):
        diff(store, "demo", 0, "", "none")
