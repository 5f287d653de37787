"""What earlier versions stored is read as if the present one had written it; what later ones stored is refused."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from r3l.audit.charts.charts import Series, line_chart
from r3l.config.methods import R3LSettings
from r3l.errors import StoreError
from r3l.methods import credit_stage
from r3l.pipeline.stages import stage_io
from r3l.records import Trajectory
from r3l.stages import STAGES
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.manifest import seal
from r3l.store.stage import Store
from r3l.store.tables.schemas import TABLES, VERSIONS, arrow_schema
from r3l.store.tables.versions import ADDED
from tests.support.store_iteration import commit_iteration, iteration_tables

STORED = Path(__file__).parents[1] / "golden" / "store_v1"
EVALUATED = Path(__file__).parents[1] / "golden" / "store_evaluation_v3"
# sha256 of each stage's columns, by its version. A change of columns without a new version makes stored runs
# unreadable.
PINNED = {
    ("tasks", 1): "aad17db4a54936d3", ("base", 6): "dd10252655c428ea", ("oracle_pivots", 1): "92bc1bd6d4a72d77",
    ("reflections", 3): "b55540b9e7b88032", ("retries", 6): "dd10252655c428ea", ("distilled", 6): "dd10252655c428ea",
    ("continuations", 6): "dd10252655c428ea", ("credit", 3): "cd209e1f8c2960aa",
    ("training_rows", 2): "19f5aec602904e5d", ("replay", 2): "1cfe65f85161a080", ("updates", 6): "4459ab60edbced49",
    ("evaluations", 6): "baca33f97fd96230",
}  # fmt: skip


@pytest.fixture
def old(tmp_path) -> Store:
    """An iteration of tests/support/store_iteration.py as version 1 stored it."""
    shutil.copytree(STORED, tmp_path / "old")
    return Store.open(str(tmp_path / "old"))


def test_rows_of_version_1_are_read_as_they_are_now(old, tmp_path):
    new = commit_iteration(Store.open(str(tmp_path / "new")))
    store = Store.open(str(tmp_path / "new"))
    for ref in old.stages("demo"):
        for table in STAGES[ref.stage].tables:
            known = [column.name for column in TABLES[table] if column.name != "rollback_hashes"]  # not recorded then
            assert old.read(ref, table, known).equals(store.read(new[ref.stage], table, known)), (ref.stage, table)
    retries = next(ref for ref in old.stages("demo") if ref.stage == "retries")
    assert old.manifest(retries)["schema_version"] == 1
    assert old.read(retries, "trajectories", ["parent_id", "shared_turns"]).to_pydict() == {
        "parent_id": ["iteration=0/task=0/base=0", "iteration=0/task=1/base=1"],
        "shared_turns": [1, 2],
    }


def test_views_and_checks_take_old_and_new_together(old):
    assert check_run(old, "demo") == []
    commit_iteration(old, iteration=1)
    assert check_run(old, "demo") == []
    connection = connect(old)
    sql = "SELECT iteration, parent_id, shared_turns FROM retries WHERE task = 1 ORDER BY iteration"
    assert connection.execute(sql).fetchall() == [
        (0, "iteration=0/task=1/base=1", 2),
        (1, "iteration=1/task=1/base=1", 2),
    ]
    assert connection.execute("SELECT DISTINCT penalty FROM credit").fetchall() == [(0.0,)]


def test_a_newer_version_is_refused_and_not_made_again(old):
    ref, known = old.stages("demo")[1], VERSIONS["base"]
    path = Path(old.root, ref.key.manifest)
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_bytes(seal(content | {"schema_version": known + 1, "code_version": "9.9"}))
    with pytest.raises(
        StoreError,
        match=rf"version {known + 1} of stage base; this code reads up to {known}: it was written by r3l 9\.9",
    ):
        old.find(ref.key, ref.fingerprint)


def test_so_is_a_manifest_that_says_more_and_a_stage_that_is_not_known(old):
    ref = old.stages("demo")[1]
    path = Path(old.root, ref.key.manifest)
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_bytes(seal(content | {"signature": "of a later version", "code_version": "9.9"}))
    with pytest.raises(StoreError, match=r"written by r3l 9\.9"):
        old.find(ref.key, ref.fingerprint)
    unknown = Path(old.root, "demo/iteration=00000/dreams/shard=000/stage.json")
    unknown.parent.mkdir(parents=True)
    unknown.write_text("{}")
    findings = {finding.place: finding.what for finding in check_run(old, "demo")}
    assert "of no stage that this code knows" in findings["demo/iteration=00000/dreams/shard=000/stage.json"]


def test_what_was_added_exists_and_came_with_a_version():
    for (table, version), columns in ADDED.items():
        writers = [name for name, stage in STAGES.items() if table in stage.tables]
        assert all(VERSIONS[stage] >= version for stage in writers)
        assert set(columns) <= {column.name for column in TABLES[table]}


@pytest.mark.parametrize("stage", STAGES)
def test_a_change_of_columns_comes_with_a_version(stage):
    columns = "\n".join(f"{table}: {arrow_schema(table)}" for table in (*STAGES[stage].tables, "events"))
    pinned = PINNED.get((stage, VERSIONS[stage]))
    assert pinned == sha256(columns.encode()).hexdigest()[:16], (
        "say at the new column since which version it is there (above those of all stages that write the table) and "
        "what rows before have in it, and pin it here"
    )


def test_an_evaluation_of_version_3_says_nothing_of_its_settings():
    store = Store.open(str(EVALUATED))
    (ref,) = (ref for ref in store.stages("sample", "") if ref.stage == "evaluations")
    assert store.manifest(ref)["schema_version"] < VERSIONS["evaluations"]
    found = store.read(ref, "evaluations").to_pylist()
    assert len(found) == 12
    for row in found:
        assert {row[name] for name in ADDED["evaluations", 4]} == {None}
        assert (row["benchmark"], round(row["temperature"], 3)) == ("alfworld/heldout", 0.4)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_an_attempt_whose_reward_is_no_number_is_read_as_a_failed_one(tmp_path, reward):
    """As an earlier version stored it: credit leaves it out by name, and views, check and charts go on."""
    store, tables = Store.open(str(tmp_path)), iteration_tables(7)
    bad, *others = tables["base"]["trajectories"]
    tables["base"]["trajectories"] = [replace(bad, reward=reward, success=True), *others]
    del tables["credit"], tables["training_rows"], tables["updates"]
    refs = commit_iteration(store, "demo", 7, tables)
    for columns in (None, ["trajectory_id", "status"], ["trajectory_id", "success", "reward"]):
        [row] = [
            one
            for one in store.read(refs["base"], "trajectories", columns).to_pylist()
            if one["trajectory_id"] == bad.trajectory_id
        ]
        expected = {"reward": 0.0, "success": False, "status": "environment_error"}
        assert {name: row[name] for name in expected if name in row} == {
            name: value for name, value in expected.items() if name in row
        }
    played = stage_io.records(store, refs["base"], "trajectories", Trajectory)
    credit, events = credit_stage(R3LSettings(), played, [])
    assert all(np.isfinite([one.reward, one.advantage, one.group_mean]).all() for one in credit)
    [event] = [one for one in events if one.subject_id == bad.trajectory_id]
    assert (event.event, event.reason) == (
        "dropped",
        "environment_error: its reward, stored by an earlier version, is no finite number",
    )
    with closing(connect(store)) as connection:
        assert connection.execute("SELECT bool_and(isfinite(reward)) FROM trajectories").fetchone() == (True,)
        asked = f"SELECT reward, status FROM base WHERE trajectory_id = '{bad.trajectory_id}'"
        assert connection.execute(asked).fetchone() == (0.0, "environment_error")
        connection.execute("SELECT * FROM credit_as()").fetchall()
    check_run(store, "demo")
    line_chart([Series("a", [(0, 0.5), (1, reward)], [(0, reward, 1.0)])])
