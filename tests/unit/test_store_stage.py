"""Stages are committed whole, found by fingerprint and read back as they were written."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from r3l.errors import StoreError
from r3l.records import Event
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.digests import fingerprint, table_digest
from r3l.store.layout import StageKey, StageRef, key_of
from r3l.store.policies.snapshots import latest_policy, snapshot_digest
from r3l.store.stage import Store
from r3l.store.sweep import withdraw
from r3l.store.tables.parts import decode, encode, to_table
from tests.support.store_iteration import commit_iteration, iteration_tables

KEY = StageKey("demo", "", 7, "base", 3)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(str(tmp_path / "runs"))


def test_a_stage_key_and_its_path_determine_each_other():
    assert KEY.manifest == "demo/iteration=00007/base/shard=003/stage.json"
    fork = StageKey("demo", "warm", 0, "updates")
    assert fork.folder == "demo/branch=warm/iteration=00000/updates"
    assert key_of(KEY.manifest) == KEY
    assert key_of(fork.manifest) == fork
    start = StageKey("demo", "", -1, "evaluations", 0)
    assert key_of(start.manifest) == start
    assert key_of("demo/iteration=00007/base/shard=003/part-turns.parquet") is None


@pytest.mark.parametrize("name", ["", "../x", "a/b", "branch=x", ".hidden", "a" * 101])
def test_a_name_that_could_leave_its_folder_is_refused(name):
    with pytest.raises(StoreError, match="run name"):
        StageKey(name, "", 0, "base", 0)


def test_what_is_written_is_read_back(store):
    tables = iteration_tables(7)["base"]
    ref = store.commit(KEY, tables, fingerprint="f", settings={"n": 8}, policy="p0", seed=3, metrics={"turns": 12})
    assert StageRef.model_validate_json(ref.model_dump_json()) == ref
    turns = store.read(ref, "turns").to_pylist()
    assert [t["response_ids"] for t in turns[:2]] == [[1000, 7], [1001, 7]]
    assert turns[0] == {name: getattr(tables["turns"][0], name) for name in turns[0]}
    assert store.read(ref, "trajectories", ["reward", "pivot_turn"]).to_pydict() == {
        "reward": [0, 1, 0, 0],
        "pivot_turn": [None] * 4,
    }
    assert store.read(ref, "events").num_rows == 0
    manifest = store.manifest(ref)
    assert [(p["table"], p["rows"]) for p in manifest["parts"]] == [("trajectories", 4), ("turns", 12)]
    assert (manifest["policy"], manifest["seed"], manifest["settings"], manifest["metrics"]) == (
        "p0",
        3,
        {"n": 8},
        {"turns": 12},
    )


def test_found_only_by_its_own_fingerprint(store):
    ref = store.commit(KEY, iteration_tables(7)["base"], fingerprint="f")
    assert store.find(KEY, "f") == ref
    assert store.find(KEY, "g") is None
    assert store.find(StageKey("demo", "", 7, "base", 4), "f") is None


@pytest.mark.parametrize("now", ["made again", "damaged", "gone"])
def test_a_stage_is_not_found_once_what_it_was_made_from_is_another(store, now):
    """The parent was made again with other rows under the same fingerprint, as by a policy that samples without a
    seed."""
    parent = store.commit(KEY, iteration_tables(7)["base"], fingerprint="f")
    key = StageKey("demo", "", 7, "reflections", 3)
    ref = store.commit(key, iteration_tables(7)["reflections"], fingerprint="g", parents=[parent])
    assert store.find(key, "g") == ref
    if now == "made again":
        store.commit(KEY, iteration_tables(8)["base"], fingerprint="f")
    elif now == "damaged":
        store.files.put(KEY.manifest, b"torn")
    else:
        store.files.delete(KEY.manifest)
    assert store.find(key, "g") is None
    again = store.commit(KEY, iteration_tables(7)["base"], fingerprint="f")
    assert (store.find(key, "g"), again) == (ref, parent)


def test_a_second_commit_replaces_the_first_and_leaves_no_file_behind(store, tmp_path):
    first = store.commit(KEY, iteration_tables(7)["base"], fingerprint="f")
    second = store.commit(KEY, iteration_tables(8)["base"], fingerprint="g")
    assert store.find(KEY, "g") == second
    assert sorted(p.name.split("-")[1] for p in (tmp_path / "runs" / KEY.folder).glob("part-*")) == [
        "trajectories",
        "turns",
    ]
    with pytest.raises(StoreError, match="made again since"):
        store.read(first, "turns")


def test_what_later_iterations_rest_on_is_not_rewritten_with_other_settings(store):
    refs = commit_iteration(store, iteration=0)
    base = refs["base"]
    rows = iteration_tables(0)["base"]
    store.commit(base.key, rows, fingerprint="other settings")
    commit_iteration(store, iteration=1)
    with pytest.raises(
        StoreError, match=r"iteration 1 continues from it.*r3l replay demo --iteration 0 --from base --set"
    ):
        store.commit(base.key, rows, fingerprint=base.fingerprint)
    store.commit(base.key, rows, fingerprint="other settings")
    store.files.put(base.key.manifest, b"torn")
    assert store.commit(base.key, rows, fingerprint=base.fingerprint) == base


def test_rows_that_do_not_fit_are_refused_before_anything_is_written(store, tmp_path):
    broken = asdict(iteration_tables(7)["base"]["turns"][0]) | {"observation": None}
    with pytest.raises(StoreError, match="table turns: column observation is null in 1 rows"):
        store.commit(KEY, {"turns": [broken]}, fingerprint="f")
    with pytest.raises(StoreError, match="table turns: rows have no column 'turn'"):
        store.commit(
            KEY, {"turns": [{name: value for name, value in broken.items() if name != "turn"}]}, fingerprint="f"
        )
    with pytest.raises(StoreError, match="stage base writes trajectories, turns, events, not credit"):
        store.commit(KEY, {"credit": []}, fingerprint="f")
    with pytest.raises(StoreError, match="whose fields are not its columns"):
        store.commit(KEY, {"trajectories": iteration_tables(7)["tasks"]["tasks"]}, fingerprint="f")
    assert not list((tmp_path / "runs").rglob("stage.json"))


def test_a_store_that_is_not_writable_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="not writable"):
        Store.open(str(tmp_path / "file" / "runs"))
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.getuid():
        with pytest.raises(StoreError, match="not writable"):
            Store.open(str(locked))


def test_the_root_is_the_argument_then_the_environment_then_data_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_HOME", str(tmp_path))
    monkeypatch.delenv("R3L_STORE")
    assert Store.open().root == str(tmp_path / "data" / "runs")
    monkeypatch.setenv("R3L_STORE", str(tmp_path / "else"))
    assert Store.open().root == str(tmp_path / "else")
    assert Store.open(str(tmp_path / "named")).root == str(tmp_path / "named")


def test_the_digest_is_of_the_rows_not_of_their_encoding():
    turns = to_table("turns", iteration_tables(0)["base"]["turns"])
    sliced = pa.concat_tables([turns.slice(0, 5), turns.slice(5)])
    assert table_digest(sliced) == table_digest(turns) == table_digest(decode(encode(turns)).cast(turns.schema))
    assert table_digest(turns.slice(1)) != table_digest(turns)
    swapped = turns.take([1, 0, *range(2, turns.num_rows)])
    assert table_digest(swapped) != table_digest(turns)


def test_the_digest_leaves_out_wall_time_and_tells_null_from_zero():
    rows = iteration_tables(0)["retries"]["trajectories"]
    table = to_table("trajectories", rows)
    slower = table.set_column(
        table.schema.get_field_index("seconds"), table.schema.field("seconds"), pa.array([9.0, 9.0], pa.float32())
    )
    assert table_digest(slower) == table_digest(table)
    index = table.schema.get_field_index("pivot_asked")
    zero = table.set_column(index, table.schema.field(index), pa.array([0, 2], pa.int32()))
    null = table.set_column(index, table.schema.field(index), pa.array([None, 2], pa.int32()))
    assert len({table_digest(table), table_digest(zero), table_digest(null)}) == 3


def test_the_fingerprint_is_decided_by_everything_that_decides_the_rows():
    base = fingerprint("base", {"temperature": 1.0, "turns": 25}, ["a"], "p0", {"template": "x"})
    assert base == fingerprint("base", {"turns": 25, "temperature": 1.0}, ["a"], "p0", {"template": "x"})
    others = [
        fingerprint("retries", {"temperature": 1.0, "turns": 25}, ["a"], "p0", {"template": "x"}),
        fingerprint("base", {"temperature": 0.7, "turns": 25}, ["a"], "p0", {"template": "x"}),
        fingerprint("base", {"temperature": 1.0, "turns": 25}, ["b"], "p0", {"template": "x"}),
        fingerprint("base", {"temperature": 1.0, "turns": 25}, ["a"], "p1", {"template": "x"}),
        fingerprint("base", {"temperature": 1.0, "turns": 25, "seed": 2}, ["a"], "p0", {"template": "x"}),
        fingerprint("base", {"temperature": 1.0, "turns": 25}, ["a"], "p0", {"template": "y"}),
    ]
    assert len({base, *others}) == 7


def test_the_next_iteration_is_the_first_without_an_update(store):
    assert store.next_iteration("demo") == 0
    commit_iteration(store, iteration=0)
    assert store.next_iteration("demo") == 1
    store.commit(StageKey("demo", "", 1, "tasks"), iteration_tables(1)["tasks"], fingerprint="f")
    assert store.next_iteration("demo") == 1
    store.commit(StageKey("demo", "fork", 4, "credit", 0), {}, fingerprint="f")
    assert store.next_iteration("demo", "fork") == 4
    store.commit(StageKey("demo", "fork", 4, "updates"), {}, fingerprint="f")
    assert store.next_iteration("demo", "fork") == 5
    assert store.runs() == ["demo"]


def test_stages_come_in_the_order_of_the_pipeline(store):
    refs = commit_iteration(store)
    assert store.stages("demo") == list(refs.values())
    assert store.stages("demo", iteration=1) == []
    assert store.stages("other") == []


def test_a_snapshot_is_named_by_what_it_says_not_by_its_optimiser(tmp_path):
    with pytest.raises(StoreError, match=r"no \*.safetensors"):
        snapshot_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.json").write_text("{}")
    first = snapshot_digest(tmp_path)
    assert len(first) == 16
    (tmp_path / "optimizer.safetensors").write_bytes(b"state")
    (tmp_path / "notes.md").write_text("x")
    assert snapshot_digest(tmp_path) == first
    (tmp_path / "chat_template.jinja").write_text("{{ x }}")
    assert snapshot_digest(tmp_path) != first


def test_the_latest_policy_is_that_of_the_newest_update_before(store):
    assert latest_policy(store, "demo") is None
    commit_iteration(store, iteration=0)
    commit_iteration(store, iteration=1)
    assert latest_policy(store, "demo") == ("demo/policies/iteration=00001", "p2", None, 2)
    assert latest_policy(store, "demo", before_iteration=1) == ("demo/policies/iteration=00000", "p1", None, 1)
    assert latest_policy(store, "demo", before_iteration=0) is None
    assert latest_policy(store, "demo", "fork", before_iteration=1) == ("demo/policies/iteration=00000", "p1", None, 1)


def test_a_stage_is_intact_until_a_part_is_lost_or_cut_or_another_takes_its_place(tmp_path):
    store = Store.open(str(tmp_path))
    ref = commit_iteration(store)["base"]
    assert store.intact(ref)
    assert not store.intact(ref.model_copy(update={"digest": "0" * 64}))
    part = next((tmp_path / ref.key.folder).glob("part-turns-*.parquet"))
    content = part.read_bytes()
    part.write_bytes(content[:-1])
    assert not store.intact(ref)
    part.unlink()
    assert not store.intact(ref)
    part.write_bytes(content)
    assert store.intact(ref)
    (tmp_path / ref.key.manifest).write_bytes(b"torn")
    assert not store.intact(ref)


def test_events_of_the_machine_change_no_digest(tmp_path):
    """A run made again has other restarts and canaries, and holds the same."""
    digests = set()
    for number, kinds in enumerate(((), ("engine_retry",), ("worker_restarted", "canary"))):
        tables = iteration_tables(0)["base"] | {
            "events": [Event(0, "base", "worker=0", event, "why") for event in kinds]
        }
        digests.add(Store.open(str(tmp_path / str(number))).commit(KEY, tables, fingerprint="f").digest)
    dropped = iteration_tables(0)["base"] | {
        "events": [Event(0, "base", "iteration=0/task=0/base=0", "dropped", "why")]
    }
    assert len(digests) == 1
    assert Store.open(str(tmp_path / "dropped")).commit(KEY, dropped, fingerprint="f").digest not in digests


@pytest.mark.parametrize("content", [b"[" * 100_000, b"9" * 5_000, b"\xff", b"null", b"3"])
def test_a_manifest_that_is_none_counts_as_absent_and_is_made_again(store, content):
    ref = commit_iteration(store)["base"]
    store.files.put(ref.key.manifest, content)
    assert store.find(ref.key, ref.fingerprint) is None
    assert store.commit(ref.key, iteration_tables(0)["base"], fingerprint=ref.fingerprint).digest == ref.digest


def test_the_manifest_is_written_when_all_that_it_names_is_in_its_place_and_on_the_disk(store, monkeypatch):
    fsync, rename, synced, seen = os.fsync, os.rename, {}, []

    def syncing(handle: int) -> None:
        fsync(handle)
        path = os.readlink(f"/proc/self/fd/{handle}")
        synced[os.fstat(handle).st_ino] = sorted(os.listdir(path)) if os.path.isdir(path) else []

    def looking(source: str, target: str) -> None:
        folder, name = os.path.split(target)
        assert os.stat(source).st_ino in synced, "a name before its bytes"
        if name == "stage.json":
            named = {part["file"] for part in json.loads(Path(source).read_text())["parts"]}
            seen.append(named and named <= {*synced[os.stat(folder).st_ino]})
        rename(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", looking)
    key = commit_iteration(store, tables=iteration_tables(0))["base"].key
    assert seen == [True] * 9
    assert "stage.json" in synced[os.stat(f"{store.root}/{key.folder}").st_ino]


def test_a_folder_in_the_place_of_a_manifest_is_one_line(store):
    ref = commit_iteration(store)["base"]
    manifest = Path(store.root, ref.key.manifest)
    manifest.unlink()
    manifest.mkdir()
    assert store.find(ref.key, ref.fingerprint) is None
    with pytest.raises(StoreError, match=r"stage.json: is a folder, expected a file; move it away$"):
        store.commit(ref.key, {}, fingerprint=ref.fingerprint)
    assert check_run(store, "demo")


@pytest.mark.parametrize("folder", [
    "branch=we ird", "branch=", "branch=..", "branch=a\nb", "other=x", "shard=0", "x" * 200, "iteration=0",
    "iteration=x", "iteration=-0",
])  # fmt: skip
def test_a_folder_with_an_odd_name_is_none_of_the_run_s_and_check_names_it(store, folder):
    ref = commit_iteration(store)["tasks"]
    odd = f"demo/{folder}" if "iteration" in folder else f"demo/{folder}/iteration=00000"
    foreign = Path(store.root, odd, "tasks", "stage.json")
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(Path(store.root, ref.key.manifest).read_bytes())
    assert (len(store.stages("demo")), store.branches("demo"), store.next_iteration("demo")) == (9, [], 1)
    Path(store.root, odd, "tasks", "part-turns-000000000000.parquet").write_bytes(b"left behind")
    Path(store.root, odd, "writer.lock").write_bytes(b"left behind")
    assert store.sweep("demo") == []
    with connect(store, question="FROM turns, stages") as connection:
        assert connection.execute("SELECT count(*) FROM turns").fetchall() == [(21,)]
        ((run, why),) = connection.execute("FROM left_out").fetchall()
        assert run == "demo"
        assert "of no stage that this code knows" in why
        assert connection.execute("SELECT count(*) FROM lines.stages").fetchall() == [(9,)]
    (found,) = check_run(store, "demo")
    assert (found.check, found.place) == ("files", f"{odd}/tasks/stage.json")


def test_a_withdrawn_stage_is_gone_whole_and_the_others_stay(store):
    refs = commit_iteration(store)
    before = {*store.files.paths("demo")}
    withdraw(store.files, refs["base"].key)
    gone = before - {*store.files.paths("demo")}
    assert gone == {path for path in before if path.startswith(f"{refs['base'].key.folder}/")} != set()
    assert refs["base"] not in store.stages("demo")
