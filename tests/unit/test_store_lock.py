"""One writer per iteration; the dead are succeeded, the living are named; sweeping touches nobody's work."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from r3l.errors import StoreError
from r3l.store.files import process
from r3l.store.layout import StageKey
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, iteration_tables

BOOT = "00000000-0000-0000-0000-000000000000"
HOLDER = """
import sys, time
from r3l.store.stage import Store
with Store.open(sys.argv[1]).writer_lock("demo", "", 3):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(str(tmp_path))


@pytest.fixture
def holder(store):
    with subprocess.Popen([sys.executable, "-c", HOLDER, store.root], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
        child.kill()


def dead_mark() -> str:
    """The mark of a process of this host that has ended."""
    return str(process.Mark(*process.here(), 999_999_999, 5.0))


def lock_file(store: Store) -> Path:
    return Path(store.root, "demo/iteration=00003/writer.lock")


def test_a_living_holder_is_named(store, holder):
    with pytest.raises(StoreError) as refusal, store.writer_lock("demo", "", 3):
        pass
    named = (
        rf"demo/iteration=00003/writer.lock: held by host {socket.gethostname()}, process {holder.pid}, since 20\d\d-"
    )
    assert re.search(named, str(refusal.value))
    with store.writer_lock("demo", "", 4), store.writer_lock("demo", "fork", 3):
        pass  # another iteration, another branch


def test_a_killed_holder_is_succeeded(store, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert lock_file(store).exists()
    with store.writer_lock("demo", "", 3):
        assert json.loads(lock_file(store).read_text())["process"] == process.mark()
    assert not lock_file(store).exists()


def test_a_holder_waits_for_nobody_to_clean_up_after_an_error(store):
    with pytest.raises(RuntimeError), store.writer_lock("demo", "", 3):
        raise RuntimeError
    assert not lock_file(store).exists()


def written(store: Store, **changed: object) -> None:
    """A lock file as its holder writes it, but for what is changed."""
    lock_file(store).parent.mkdir(parents=True)
    content = {
        "process": f"elsewhere~{BOOT}~4026531836~17~99.0",
        "nonce": "n",
        "since": "2026-01-01T00:00:00+00:00",
        "renewed": time.time(),
    }
    lock_file(store).write_text(json.dumps(content | changed))


@pytest.mark.parametrize(
    ("renewed", "free"), [(0.0, False), (-299.0, False), (-301.0, True), (30.0, False), (90.0, True), (86_400.0, True)]
)
def test_a_holder_on_another_host_counts_by_its_lease(store, renewed, free):
    written(store, renewed=time.time() + renewed)
    if free:
        with store.writer_lock("demo", "", 3):
            pass
    else:
        named = r"held by host elsewhere, process 17 \(which .* ends in \d+ s\), since 2026"
        with pytest.raises(StoreError, match=named), store.writer_lock("demo", "", 3):
            pass


@pytest.mark.parametrize("part", [1, 2])
def test_a_process_of_another_boot_or_pid_namespace_is_not_looked_for_here(store, part):
    """The same host name and process number, and none that lives here: its lease alone tells."""
    parts = process.mark(os.getpid()).split("~")
    parts[part] = "another"
    mark = "~".join(parts)
    assert process.lives(mark) is None
    written(store, process=mark)
    with (
        pytest.raises(StoreError, match=f"process {os.getpid()} \\(which can't be seen from here"),
        store.writer_lock("demo", "", 3),
    ):
        pass
    lock_file(store).unlink()
    lock_file(store).parent.rmdir()
    written(store, process=mark, renewed=time.time() - 301)
    with store.writer_lock("demo", "", 3):
        pass


@pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode != 0,
    reason="needs the right to make a pid namespace",
)
def test_a_lock_is_not_taken_from_another_pid_namespace(store):
    """The holder's number is 1 in its namespace; here process 1 is another one, with the same host name."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", HOLDER, store.root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with (
            pytest.raises(StoreError, match=r"process 1 \(which can't be seen from here"),
            store.writer_lock("demo", "", 3),
        ):
            pass
        for one in psutil.Process(child.pid).children():
            one.kill()


@pytest.mark.parametrize("changed", [
    {"process": 3}, {"process": None}, {"process": ["a"]}, {"since": 3}, {"since": None}, {"renewed": "soon"},
    {"renewed": None}, {"renewed": True}, {"renewed": [1]}, {"renewed": float("nan")}, {"renewed": float("inf")},
    {"nonce": 5, "renewed": {}},
])  # fmt: skip
def test_a_lock_with_wrong_types_is_torn(store, changed):
    written(store, **changed)
    with store.writer_lock("demo", "", 3):
        pass


@pytest.mark.parametrize(
    "mark",
    ["", "~", "~~", "host", "host~pid~start", "host~17~99", "a~b~c~d~e", "a~b~c~1~nan~", "~" * 99, "h~b~n~-1~2.0"],
)
def test_a_mark_of_another_form_counts_by_its_lease(store, mark):
    assert process.lives(mark) is None
    written(store, process=mark)
    with pytest.raises(StoreError, match=r"held by .*since 2026"), store.writer_lock("demo", "", 3):
        pass


def test_a_folder_in_the_place_of_the_lock_is_named(store):
    lock_file(store).mkdir(parents=True)
    with (
        pytest.raises(StoreError, match=r"writer.lock: is a folder, expected a file; move it away"),
        store.writer_lock("demo", "", 3),
    ):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"process": 3}', b"\xff", b"[" * 100_000])
def test_a_torn_lock_holds_nobody_up(store, content):
    lock_file(store).parent.mkdir(parents=True)
    lock_file(store).write_bytes(content)
    with store.writer_lock("demo", "", 3):
        pass


def test_a_process_number_given_out_again_is_not_the_holder(store):
    other = f"{process.mark().rpartition('~')[0]}~1.0"
    written(store, process=other)
    assert process.lives(other) is False
    with store.writer_lock("demo", "", 3):
        pass


def test_of_eight_takers_one_wins(store):
    def put(number: int) -> bool:
        return store.files.put_if("demo/lock", str(number).encode(), None)

    for _ in range(10):
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(put, range(8))) == 1
        store.files.delete("demo/lock")


def test_sweeping_deletes_what_the_dead_left_and_nothing_else(store):
    refs = commit_iteration(store, tables=iteration_tables(0))
    root = Path(store.root)
    dead, alive = f"{dead_mark()}~abc", f"{process.mark()}~abc"
    for name in (dead, alive):
        (root / ".staging" / name).write_bytes(b"half")
    orphan = root / refs["base"].key.folder / "part-turns-000000000000.parquet"
    orphan.write_bytes(b"left behind")
    policy = root / "demo" / "policies" / "iteration=00000" / "part-x.parquet"
    policy.parent.mkdir(parents=True)
    policy.write_bytes(b"not of the store")
    lock = root / "demo" / "iteration=00000" / "writer.lock"
    lock.write_text(json.dumps({"process": dead_mark(), "since": "then", "renewed": 0.0}))
    before = {path for path in root.rglob("*") if path.is_file()} - {lock}
    assert sorted(store.sweep("demo")) == [f".staging/{dead}", orphan.relative_to(root).as_posix()]
    assert before - {path for path in root.rglob("*") if path.is_file()} == {orphan, root / ".staging" / dead}
    assert store.sweep("demo") == []


@pytest.mark.parametrize("branch", ["", "fork"])
def test_a_long_run_is_swept_without_reading_the_iterations_whose_writers_left_in_order(store, monkeypatch, branch):
    for iteration in range(3):
        commit_iteration(store, branch=branch, iteration=iteration)
    part = f"demo/{'branch=fork/' if branch else ''}iteration=00001/base/shard=000/part-turns-000000000000.parquet"
    store.files.put(part, b"left behind")
    files_read, read = [], store.files.__class__.read
    monkeypatch.setattr(store.files.__class__, "read", lambda files, path: files_read.append(path) or read(files, path))
    with store.writer_lock("demo", branch, 2):
        assert store.sweep("demo") == []
    assert {path.rpartition("iteration=")[2].split("/")[0] for path in files_read} == {"00002"}
    with store.writer_lock("demo", branch, 1):
        assert store.sweep("demo") == [part]


@pytest.mark.parametrize("content", [b"", b"torn", b"{}"])
def test_the_parts_of_a_stage_whose_manifest_can_not_be_read_stay(store, content):
    """They are the evidence of what happened, and may be all that is left of the stage."""
    ref = commit_iteration(store)["base"]
    parts = [f"{ref.key.folder}/{part['file']}" for part in store.manifest(ref)["parts"]]
    store.files.put(ref.key.manifest, content)
    with store.writer_lock("demo"):
        assert store.sweep("demo") == []
    assert {*parts} <= {*store.files.paths("demo")}


def test_so_do_those_of_a_stage_whose_manifest_is_a_folder(store):
    ref = commit_iteration(store)["base"]
    parts = [f"{ref.key.folder}/{part['file']}" for part in store.manifest(ref)["parts"]]
    manifest = Path(store.root, ref.key.manifest)
    manifest.unlink()
    manifest.mkdir()
    with store.writer_lock("demo"):
        assert store.sweep("demo") == []
    assert {*parts} <= {*store.files.paths("demo")}


def test_a_process_that_ended_and_was_not_waited_for_lives_no_more():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mark = process.mark(child.pid)
        assert process.lives(mark) is True
        child.communicate()
        # the child of a child that nobody waits for stays a zombie
    parent = "import subprocess; child = subprocess.Popen(['true']); print(child.pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        zombie = psutil.Process(int(waiting.stdout.readline()))
        for _ in range(200):
            if zombie.status() == psutil.STATUS_ZOMBIE:
                break
            time.sleep(0.05)
        assert process.start_time(zombie.pid) is None
    assert process.lives(mark) is False


def test_an_iteration_at_work_is_not_swept(store, holder):
    part = "demo/iteration=00003/base/shard=000/part-turns-000000000000.parquet"
    store.files.put(part, b"its manifest comes next")
    assert store.sweep("demo") == []
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with store.writer_lock("demo", "", 3):
        assert store.sweep("demo") == [part]


def test_a_stage_committed_by_another_meanwhile_is_refused(store, monkeypatch):
    key = StageKey("demo", "", 0, "base", 0)
    put_if = store.files.put_if

    def overtaken(*write: Any) -> bool:
        monkeypatch.setattr(store.files, "put_if", put_if)
        store.commit(key, iteration_tables(0)["base"], fingerprint="first")
        return put_if(*write)

    monkeypatch.setattr(store.files, "put_if", overtaken)
    with pytest.raises(StoreError, match="another writer committed it meanwhile"):
        store.commit(key, iteration_tables(1)["base"], fingerprint="second")
    assert store.find(key, "first") is not None


def test_readers_need_no_lock_and_never_see_half_a_stage(store):
    """A writer replaces a stage 30 times while readers read it: each sees one of the two contents, whole, or is
    told."""
    key = StageKey("demo", "", 0, "base", 0)
    contents = [iteration_tables(i)["base"] for i in (0, 1)]
    digests = {store.commit(key, tables, fingerprint=str(i)).digest for i, tables in enumerate(contents)}

    def write() -> None:
        for turn in range(30):
            store.commit(key, contents[turn % 2], fingerprint=str(turn % 2))

    def read(_: int) -> int:
        ref = store.stages("demo")[0]
        assert ref.digest in digests
        try:
            turns = store.read(ref, "turns")
        except StoreError as error:
            if not re.search("made again since|missing", str(error)):
                raise
            return 0
        assert turns.num_rows == 12
        assert len(set(turns["iteration"].to_pylist())) == 1
        return 1

    with ThreadPoolExecutor(3) as pool:
        writing = pool.submit(write)
        whole = sum(pool.map(read, range(60)))
        writing.result()
    assert whole > 0


def test_a_full_disk_is_named_and_leaves_nothing_half_done(store, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="can't be written \\(No space left on device\\)"):
        store.commit(StageKey("demo", "", 0, "base", 0), iteration_tables(0)["base"], fingerprint="f")
    monkeypatch.undo()
    assert [path.name for path in Path(store.root).rglob("*") if path.is_file()] in ([], ["guard"])


def test_a_lock_that_was_written_though_its_writing_failed_is_given_up(store, monkeypatch):
    """The rename is done, and then there is no space for the folder's own record of it."""
    real, calls = os.fsync, []

    def second_fails(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(StoreError, match="No space left"), store.writer_lock("demo", "", 3):
        pass
    assert not lock_file(store).exists()
    with store.writer_lock("demo", "", 3):
        pass


def test_a_lease_is_renewed_while_it_is_held_and_the_loss_of_it_is_told(store, monkeypatch, caplog):
    monkeypatch.setattr("r3l.store.files.lock.RENEW_SECONDS", 0.05)
    with store.writer_lock("demo", "", 3):
        first = json.loads(lock_file(store).read_text())
        deadline = time.time() + 20
        while json.loads(lock_file(store).read_text())["renewed"] == first["renewed"] and time.time() < deadline:
            time.sleep(0.02)
        now = json.loads(lock_file(store).read_text())
        assert now["renewed"] > first["renewed"]
        assert now["nonce"] == first["nonce"]
        lock_file(store).write_text(json.dumps(now | {"nonce": "another"}))
        while "lost to another writer" not in caplog.text and time.time() < deadline:
            time.sleep(0.02)
    assert "lost to another writer" in caplog.text
    assert lock_file(store).exists()
