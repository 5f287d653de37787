"""The replay stage over stored iterations: what is drawn, how often, and whose policies the update needs for it."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from r3l.config import compose
from r3l.errors import Pruned
from r3l.judge.witness import Witness
from r3l.methods.replay_buffer import Correction
from r3l.pipeline.stages import replay_buffer
from r3l.records import Event
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.space.retention import prune_run
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables


def bench(store, iteration, *assignments):
    config = compose(run="demo", assignments=["training.sync_interval=2", *assignments])
    return SimpleNamespace(
        config=config,
        store=store,
        iteration=iteration,
        policies=SimpleNamespace(start=SimpleNamespace(digest="p0", path="start")),
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Three iterations; in each only the group of task 0 has training rows (five of them)."""
    store = Store.open(str(tmp_path_factory.mktemp("plain")))
    for iteration in range(3):
        commit_iteration(store, iteration=iteration)
    return store


@pytest.fixture
def store(plain, tmp_path):
    """A copy to go on with."""
    return Store.open(str(shutil.copytree(plain.root, tmp_path / "store")))


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


MEMORY = ("training.sync_interval=1", "method.meta_replay=0.5")


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """Four iterations, whose group of task 0 has a learned retry and its report: cup, jar, cup, and one without."""
    store = Store.open(str(tmp_path_factory.mktemp("memory")))
    for iteration, name in enumerate(("cup", "jar", "cup", "pan")):
        tables = iteration_tables(iteration)
        tables["tasks"]["tasks"] = [replace(one, task_id=f"{name} {one.task}") for one in tables["tasks"]["tasks"]]
        rows = tables["training_rows"]
        if name == "pan":  # what has no row says why
            lost = [row for row in rows["training_rows"] if row.role in ("reflect", "retry")]
            rows["training_rows"] = [row for row in rows["training_rows"] if row not in lost]
            rows["events"] += [Event(3, "training_rows", row.source_id, "no_meta_task", "lost") for row in lost]
        commit_iteration(store, iteration=iteration, tables=tables)
    return store


@pytest.fixture
def corrected(memory, tmp_path):
    """A copy to go on with."""
    return Store.open(str(shutil.copytree(memory.root, tmp_path / "corrected")))


def of_memory(store, iteration, fresh, *assignments):
    """What joins a step, and which iterations the stage is made from."""
    at = bench(store, iteration, *MEMORY, *assignments)
    own = [ref for ref in store.stages("demo", "", iteration) if ref.stage == "training_rows"]
    tables = replay_buffer.replay_tables(at, fresh, own)
    assert tables["replay"] == []  # no group of the batch's mean
    return tables["training_rows"], [ref.iteration for ref in replay_buffer.history(at)]


def test_without_memory_the_stage_is_not_there(corrected):
    assert not replay_buffer.active(bench(corrected, 3, *MEMORY))
    assert not replay_buffer.active(bench(corrected, 3, *MEMORY, "method.meta_memory=2", "method.meta_replay=0"))
    assert replay_buffer.active(bench(corrected, 3, *MEMORY, "method.meta_memory=2"))


def test_memory_is_read_back_until_it_is_full(corrected):
    def place(rows):
        return sorted(row.row_id.removeprefix("iteration=3/replay/").split("/")[0] for row in rows)

    rows, read = of_memory(corrected, 3, 2, "method.meta_memory=1")
    assert (place(rows), read) == (["iteration=2"], [2])
    rows, read = of_memory(corrected, 3, 2, "method.meta_memory=2")
    assert (place(rows), read) == (["iteration=1", "iteration=2"], [2, 1])
    rows, read = of_memory(corrected, 3, 9, "method.meta_memory=9")  # cup's newest correction stands for it
    assert (place(rows), read) == (["iteration=1", "iteration=2"], [2, 1, 0])
    assert of_memory(corrected, 0, 2, "method.meta_memory=9") == ([], [])


def test_a_step_without_corrections_takes_as_many_as_it_has_groups(corrected):
    """Half of the meta-task rows are from memory: as many as it has groups, having no row of its own; as its two own
    rows where these are more."""
    assert [len(of_memory(corrected, 3, groups, "method.meta_memory=9")[0]) for groups in (0, 1, 2)] == [0, 1, 2]
    assert len(of_memory(corrected, 2, 1, "method.meta_memory=9")[0]) == 2


def test_an_iteration_with_more_corrected_tasks_than_memory_holds_fills_it(store, monkeypatch):
    many = [Correction(f"{task}/{row}", f"g{task}", f"task {task}", 2) for task in range(3) for row in range(2)]
    monkeypatch.setattr(replay_buffer, "won_in", lambda *_: many)
    _, kept = replay_buffer.corrections_in_memory(bench(store, 3, *MEMORY, "method.meta_memory=2"))
    assert [one.task_id for one in kept] == ["task 0", "task 0", "task 1", "task 1"]


def test_rows_from_memory_say_where_they_come_from_and_the_store_checks_out(corrected):
    rows, _ = of_memory(corrected, 3, 2, "method.meta_memory=9")
    assert {(row.iteration, row.role, row.term) for row in rows} == {(3, "replay", "sft")}
    commit_stage(corrected, "replay", {"training_rows": rows, "replay": []}, [], "demo", 3)
    asked = (
        "SELECT count(*) FROM training_rows m JOIN training_rows o USING (source_id, token_ids, weights, advantage) "
        "WHERE m.role = 'replay' AND m.iteration = 3 AND o.role IN ('reflect', 'retry') AND o.iteration < 3"
    )
    assert connect(corrected).execute(asked).fetchall() == [(2,)]
    assert check_run(corrected, "demo") == []


def test_what_was_pruned_is_passed_over_and_the_run_goes_on(corrected):
    prune_run(corrected, "demo", keep_last=2, drop="logprobs")
    rows, read = of_memory(corrected, 3, 2, "method.meta_memory=9")
    assert {row.source_id.split("/")[0] for row in rows} == {"iteration=2"}
    assert read == [2]
    assert [one.source_iteration for one in replay_buffer.replay_tables(bench(corrected, 3), 9)["replay"]] == [2]
    judged = bench(Witness(corrected.files), 3, *MEMORY, "method.meta_memory=9")
    with pytest.raises(Pruned, match="before or after"):
        replay_buffer.history(judged)


def test_a_row_from_memory_that_is_not_what_won_is_found(corrected):
    first, *others = of_memory(corrected, 3, 2, "method.meta_memory=9")[0]
    forged = replace(first, advantage=2 * first.advantage)
    commit_stage(corrected, "replay", {"training_rows": [forged, *others], "replay": []}, [], "demo", 3)
    (finding,) = check_run(corrected, "demo")
    assert (finding.check, finding.what) == ("9_row_weights", "not the row that it replays")


def test_what_is_replayed_with_its_group_does_not_join_from_memory_too(corrected):
    assignments = ("training.sync_interval=2", "method.meta_replay=0.5", "method.meta_memory=9")
    tables = replay_buffer.replay_tables(bench(corrected, 3, *assignments), 1)
    (group,) = tables["replay"]
    names = [row.row_id for row in tables["training_rows"]]
    assert len(set(names)) == len(names) > group.rows
