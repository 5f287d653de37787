"""Pruning gives back bytes and says what is lost; rows, manifests, figures and the newest iterations stay."""

import shutil
from pathlib import Path

import pytest

from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.space.retention import prune_run
from r3l.store.stage import Store
from tests.support.store_iteration import commit_evaluation, commit_iteration, commit_stage, iteration_tables


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Store:
    store = Store.open(str(tmp_path_factory.mktemp("whole")))
    for iteration in range(3):
        commit_iteration(store, iteration=iteration)
    return store


@pytest.fixture
def store(whole, tmp_path) -> Store:
    """A copy to prune."""
    return Store.open(str(shutil.copytree(whole.root, tmp_path / "store")))


def figures(store: Store) -> list[dict]:
    rows = connect(store).sql("SELECT * FROM iterations").to_arrow_table().to_pylist()
    return [{name: value for name, value in row.items() if name != "sequence_tokens"} for row in rows]


@pytest.mark.parametrize(
    "drop", [pytest.param("logprobs", marks=pytest.mark.slow), pytest.param("tokens", marks=pytest.mark.slow), "all"]
)
def test_old_iterations_lose_their_heavy_columns_and_nothing_else(store, drop):
    before, refs = figures(store), store.stages("demo")
    pruned = prune_run(store, "demo", keep_last=1, drop=drop)
    assert pruned.iterations == [("demo", "", 0), ("demo", "", 1)]
    assert 0 < pruned.after < pruned.before
    assert figures(store) == before
    assert store.stages("demo") == refs
    assert all(store.find(ref.key, ref.fingerprint) == ref for ref in refs)
    assert check_run(store, "demo") == []
    assert store.next_iteration("demo") == 3
    assert connect(store).execute("SELECT count(*) FROM turns").fetchall() == [(63,)]
    assert prune_run(store, "demo", keep_last=1, drop=drop).after == pruned.after


def test_old_policies_go_whole_and_the_newest_stays(store):
    folders = [Path(store.root, f"demo/policies/iteration={iteration:05d}") for iteration in range(3)]
    for folder in folders:
        for name in ("policy/model.safetensors", "optimizer/optimizer.safetensors"):
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_bytes(bytes(100))
    before, stages = figures(store), store.stages("demo")
    pruned = prune_run(store, "demo", keep_last=1, drop="policies")
    assert (pruned.iterations, pruned.before, pruned.after) == ([("demo", "", 0), ("demo", "", 1)], 400, 0)
    assert [folder.exists() for folder in folders] == [False, False, True]
    assert (figures(store), store.stages("demo")) == (before, stages)
    assert "no longer replayable there: the next update, from the weights it began with" in str(pruned)
    assert prune_run(store, "demo", keep_last=1, drop="policies").before == 0


def test_a_policy_that_is_needed_stays(store):
    needed = {"demo/policies/iteration=00000/policy"}
    pruned = prune_run(store, "demo", keep_last=1, drop="policies", needed=needed)
    assert pruned.iterations == [("demo", "", 1)]


def test_the_policy_with_the_highest_held_out_success_stays(store):
    for iteration, solved in ((-1, 9), (0, 5), (1, 7), (2, 7)):
        commit_evaluation(store, iteration, 0, "household/heldout", 20, solved)
    pruned = prune_run(store, "demo", keep_last=1, drop="policies")
    assert pruned.iterations == [("demo", "", -1), ("demo", "", 0)], (
        "of equals the oldest, and the start is none that a run wrote"
    )


def test_what_was_pruned_is_refused_by_name_and_the_rest_is_read(store):
    base = store.stages("demo", iteration=0)[1]
    prune_run(store, "demo", keep_last=2, drop="logprobs")
    assert store.read(base, "turns", ["response_ids"]).num_rows == 12
    with pytest.raises(StoreError, match=r"turns\.response_logprobs was pruned; replay from an earlier stage"):
        store.read(base, "turns")
    prune_run(store, "demo", keep_last=2, drop="tokens")
    with pytest.raises(StoreError, match="context_ids, response_ids, response_logprobs was pruned"):
        store.read(base, "turns")
    assert store.read(store.stages("demo", iteration=1)[1], "turns").num_rows == 12
    sql = (
        "SELECT iteration, list_sort(list_distinct(flatten(list(pruned)))) FROM stages GROUP BY iteration "
        "ORDER BY iteration"
    )
    rows = connect(store).execute(sql).fetchall()
    assert [iteration for iteration, columns in rows if columns] == [0]
    assert "training_rows.token_ids" in rows[0][1]


def test_it_says_what_was_given_back_and_what_is_lost(store):
    text = str(prune_run(store, "demo", keep_last=2, drop="tokens"))
    assert "bytes given back\ndemo iteration 0\nno longer replayable there: reflections, retries and distilled" in text
    assert str(prune_run(store, "demo", keep_last=5)) == "0 of 0 bytes given back"


def test_each_branch_keeps_its_own_newest(store):
    commit_stage(store, "credit", iteration_tables(0)["credit"], [], "demo", 0, branch="fork")
    assert prune_run(store, "demo", keep_last=2).iterations == [("demo", "", 0)]


def test_a_run_that_is_not_there_is_named(store):
    with pytest.raises(StoreError, match=r"run 'dem': not in .*did you mean 'demo'"):
        prune_run(store, "dem", keep_last=1)


def test_at_least_one_iteration_is_kept(store):
    with pytest.raises(StoreError, match="--keep-last 0: expected 1 or more"):
        prune_run(store, "demo", keep_last=0)


def test_an_iteration_at_work_is_not_pruned(store):
    with store.writer_lock("demo", "", 0), pytest.raises(StoreError, match="held by"):
        prune_run(store, "demo", keep_last=1)
