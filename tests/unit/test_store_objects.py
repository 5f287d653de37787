"""The store in an S3-speaking server on loopback: the same commits, reads, views and checks; conditional writes have
one winner."""

import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r3l.errors import StoreError
from r3l.store.check import check_run
from r3l.store.files.ranges import RangedFile
from r3l.store.layout import StageKey
from r3l.store.policies.snapshots import latest_policy
from r3l.store.query import ask, connect_for_users
from r3l.store.stage import Store
from tests.support.object_server import endpoint, make_bucket
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables

__all__ = ["endpoint"]
HTTP = {"allow_http": True}


@pytest.fixture
def store(endpoint, monkeypatch, tmp_path, request) -> Store:
    return Store.open(make_bucket(endpoint, f"bucket{abs(hash(request.node.name))}", tmp_path / "cache", monkeypatch))


def test_an_iteration_there_is_the_iteration_here(store, tmp_path):
    there = commit_iteration(store)
    here = commit_iteration(Store.open(str(tmp_path / "local")))
    assert there == here
    assert store.find(there["base"].key, there["base"].fingerprint) == there["base"]
    assert store.read(there["base"], "turns").num_rows == 12
    assert store.stages("demo") == list(there.values())
    assert (store.runs(), store.next_iteration("demo")) == (["demo"], 1)
    newest = latest_policy(store, "demo")
    assert newest is not None
    assert (newest.place, newest.policy) == ("demo/policies/iteration=00000", "p1")


@pytest.mark.slow
def test_duckdb_reads_from_an_object_store(store):
    commit_iteration(store)
    assert check_run(store, "demo") == []
    connection = connect_for_users(store)
    figures = ask(connection, "SELECT base_reward, trained_tokens FROM iterations").to_pylist()
    assert figures == [{"base_reward": 0.25, "trained_tokens": 20}]
    with pytest.raises(StoreError):
        ask(connection, f"FROM read_parquet('{store.root}/demo/*/*/*/*.parquet')")


ODD = ("a#1", "a#2", "a?x=1", "a%231", "a b", "a[1]", "a1", "a*", "ä")


def test_an_address_is_the_place_that_it_says(endpoint, monkeypatch, tmp_path):
    """Whatever characters its prefix has: it is no web address with a query, a fragment or escapes, and no pattern."""
    bucket = make_bucket(endpoint, "odd", tmp_path / "cache", monkeypatch).rpartition("/")[0]
    stores = {f"run{number}": Store.open(f"{bucket}/{name}") for number, name in enumerate(ODD)}
    for run, store in stores.items():
        commit_stage(store, "tasks", iteration_tables(0)["tasks"], [], run, 0)
    for run, store in stores.items():
        assert store.runs() == [run]
        with connect_for_users(store, question="FROM tasks") as connection:
            found = ask(connection, "SELECT run, count(*) AS n FROM tasks GROUP BY ALL").to_pylist()
        assert found == [{"run": run, "n": 2}]


@pytest.mark.parametrize("address", ["s3://odd//a", "s3://odd/a/../b", "s3://odd/./a"])
def test_an_address_that_is_no_place_is_refused(address):
    with pytest.raises(StoreError, match="empty"):
        Store.open(address)


def test_a_connection_does_not_open_a_file_of_an_object_store_for_every_view(store, monkeypatch):
    """However many views look at its columns."""
    commit_iteration(store)
    parts = [path for path in store.files.paths("demo") if path.endswith(".parquet")]
    opened, begin = [], RangedFile.__init__

    def counted(file, store, key, size):
        opened.append(key)
        begin(file, store, key, size)

    monkeypatch.setattr(RangedFile, "__init__", counted)
    ask(connect_for_users(store), "SELECT base_reward, trained_tokens FROM iterations")
    assert parts
    assert len(parts) <= len(opened) <= 4 * len(parts)


def test_a_file_of_several_megabytes_is_read_as_it_is(store):
    """DuckDB asks for more at once than a client's buffer holds, and by several threads."""
    numbers, out = np.random.default_rng(0).random(400_000), pa.BufferOutputStream()
    pq.write_table(pa.table({"n": numbers}), out, row_group_size=100_000)
    store.files.put("demo/long.parquet", out.getvalue().to_pybytes())
    with duckdb.connect() as connection:
        store.files.attach(connection)
        asked = connection.execute(f"SELECT sum(n) FROM '{store.files.url('demo/long.parquet')}'").fetchone()
    assert asked == (pytest.approx(numbers.sum()),)


def test_damage_in_an_object_store_is_found(store):
    refs = commit_iteration(store)
    part = next(path for path in store.files.paths(refs["base"].key.folder) if "part-turns" in path)
    content = store.files.read(part)
    assert content is not None
    store.files.put(part, content[:-9] + bytes(9))
    with pytest.raises(StoreError, match=r"part-turns.*sha256 differs"):
        store.read(refs["base"], "turns")
    assert store.find(refs["base"].key, refs["base"].fingerprint) is None
    assert part in str(check_run(store, "demo")[0])


def test_of_eight_writers_one_wins(store):
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda number: store.files.put_if("demo/lock", b"%d" % number, None), range(8))) == 1
        token = store.files.token("demo/lock")
        assert sum(pool.map(lambda number: store.files.put_if("demo/lock", b"x%d" % number, token), range(8))) == 1
    assert not store.files.put_if("demo/gone", b"", "0" * 32)


def test_an_object_store_has_one_writer_per_iteration(store):
    with store.writer_lock("demo", "", 0):
        with pytest.raises(StoreError, match="held by host"), store.writer_lock("demo", "", 0):
            pass
    with store.writer_lock("demo", "", 0):
        store.files.put("demo/iteration=00000/base/shard=000/part-turns-0.parquet", b"orphan")
        assert store.sweep("demo") == ["demo/iteration=00000/base/shard=000/part-turns-0.parquet"]


def test_a_replaced_stage_leaves_nothing_behind(store):
    key = StageKey("demo", "", 0, "base", 0)
    store.commit(key, iteration_tables(0)["base"], fingerprint="f")
    store.commit(key, iteration_tables(1)["base"], fingerprint="g")
    assert len(store.files.paths("demo")) == 3


def test_a_policy_is_fetched_on_another_machine(store, monkeypatch, tmp_path):
    written = store.run_folder("demo") / "policies" / "iteration=00000"
    written.mkdir(parents=True)
    (written / "model.safetensors").write_bytes(b"weights")
    store.publish("demo/policies/iteration=00000")
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "another machine"))
    folder = Store.open(store.root).local("demo/policies/iteration=00000")
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert folder.is_relative_to(tmp_path / "another machine")
    assert store.files.paths("demo") == []
    assert store.files.remove("demo/policies/iteration=00000") == 7
    assert not list(store.local("demo/policies/iteration=00000").glob("*"))


class Slow:
    """A store whose files come in two halves, the second one when `go` is set."""

    def __init__(self, store) -> None:
        self.store, self.halfway, self.go = store, threading.Event(), threading.Event()

    def list(self, prefix):
        return self.store.list(prefix)

    def get(self, path):
        content = self.store.get(path).bytes().to_bytes()
        yield content[:5]
        self.halfway.set()
        assert self.go.wait(20)
        yield content[5:]


def test_two_hosts_that_share_a_cache_fetch_whole_files(store, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 7)  # as the first process of every container has the same number
    store.files.put("demo/policies/p/chat_template.jinja", b"0123456789")
    slow = Store.open(store.root)
    slow.files._store = Slow(slow.files._store)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(slow.local, "demo/policies/p")
        assert slow.files._store.halfway.wait(20)
        assert (store.local("demo/policies/p") / "chat_template.jinja").read_bytes() == b"0123456789"
        assert [path.name for path in store.local("demo/policies/p").glob("chat_template*")] == ["chat_template.jinja"]
        slow.files._store.go.set()
        assert (first.result() / "chat_template.jinja").read_bytes() == b"0123456789"
    assert [path.name for path in first.result().iterdir()] == ["chat_template.jinja"]


def test_a_store_that_can_not_be_reached_is_named(store, monkeypatch):
    with pytest.raises(StoreError, match="store s3://no-such-bucket/x: can't be reached"):
        Store.open("s3://no-such-bucket/x")
    away = {"endpoint": "http://127.0.0.1:1", "skip_signature": True}
    store.files._store = obstore.store.S3Store("b", retry_config={"max_retries": 0}, client_options=HTTP, **away)
    with pytest.raises(StoreError, match=r"/demo/a: can't be read \(.+\)"):
        store.files.read("demo/a")
