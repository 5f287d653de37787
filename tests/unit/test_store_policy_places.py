"""Policies between hosts: put into the store once, pulled by digest, and never taken for another one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.errors import StoreError
from r3l.store.policies.places import fetch_policy, place_in_store, share_policy
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store
from tests.support.object_server import endpoint, make_bucket

__all__ = ["endpoint"]
PLACE = "demo/policies/iteration=00002/policy"


@pytest.fixture
def host(endpoint, monkeypatch, tmp_path, request):
    """The store as seen by a host: each has a cache of its own."""
    root = make_bucket(endpoint, f"bucket{abs(hash(request.node.name))}", tmp_path, monkeypatch)

    def open_on(name: str) -> Store:
        monkeypatch.setenv("R3L_CACHE", str(tmp_path / name))
        return Store.open(root)

    return open_on


def write(folder: Path, *weights: bytes) -> str:
    """A policy of some shards; its digest."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors"):
        old.unlink()
    for number, content in enumerate(weights):
        (folder / f"model-{number}.safetensors").write_bytes(content)
    return snapshot_digest(folder)


def test_a_starting_policy_is_put_there_once_and_pulled_by_another_host(host, tmp_path):
    digest = write(tmp_path / "start", b"abc", b"de")
    a, b = host("a"), host("b")
    place = place_in_store(a, tmp_path / "start")
    assert place == f".policies/{digest}"
    pulled = fetch_policy(b, place, digest)
    assert pulled.is_relative_to(tmp_path / "b")
    assert snapshot_digest(pulled) == digest
    (tmp_path / "start" / "model-0.safetensors").unlink()
    assert share_policy(b, tmp_path / "start", digest) == place  # its marker is there: not copied again
    assert a.runs() == []


def test_a_policy_of_the_run_is_where_it_is(host):
    store = host("a")
    write(store.files.cache / PLACE, b"abc")
    assert place_in_store(store, store.files.cache / PLACE) == PLACE


def test_a_copy_of_an_earlier_try_with_the_same_sizes_is_fetched_anew(host):
    a, b = host("a"), host("b")
    first = write(a.files.cache / PLACE, b"abc", b"gone")
    a.publish(PLACE)
    assert fetch_policy(b, PLACE, first)
    second = write(a.files.cache / PLACE, b"xyz")  # the iteration was made again on host a
    a.publish(PLACE)
    assert second != first
    assert sorted(path.name for path in fetch_policy(b, PLACE, second).iterdir()) == ["model-0.safetensors"]
    with pytest.raises(StoreError, match=rf"holds {second}, expected {first}"):
        fetch_policy(b, PLACE, first)


def test_a_folder_as_store_is_checked_and_left_as_it_is(tmp_path):
    store = Store.open(str(tmp_path / "runs"))
    digest = write(tmp_path / "runs" / PLACE, b"abc")
    assert fetch_policy(store, PLACE, digest) == tmp_path / "runs" / PLACE
    with pytest.raises(StoreError, match=f"holds {digest}"):
        fetch_policy(store, PLACE, "0" * 16)
    assert snapshot_digest(tmp_path / "runs" / PLACE) == digest


STARTER = """
import pathlib, sys
from r3l.store.policies.places import share_policy
from r3l.store.stage import Store
root = pathlib.Path(sys.argv[1])
for number, digest in enumerate(sys.argv[2:]):
    print("ready", flush=True)
    sys.stdin.readline()
    assert share_policy(Store.open(str(root / "runs")), root / f"start-{number}", digest) == f".policies/{digest}"
"""


def test_four_starters_at_once_put_a_policy_there_once(tmp_path):
    """Each process shares each of twelve policies at the same time as the three others."""
    digests = [write(tmp_path / f"start-{number}", b"abc" * 10_000, b"%d" % number) for number in range(12)]
    command = [sys.executable, "-c", STARTER, str(tmp_path), *digests]
    starters = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for _ in digests:
        assert [starter.stdout.readline() for starter in starters] == ["ready\n"] * 4
        for starter in starters:
            starter.stdin.write("go\n")
            starter.stdin.flush()
    assert [starter.communicate(timeout=60) and starter.returncode for starter in starters] == [0] * 4
    shared = tmp_path / "runs" / ".policies"
    assert sorted(os.listdir(shared)) == sorted([*digests, *(f"{digest}.whole" for digest in digests)])
    assert [snapshot_digest(shared / digest) for digest in digests] == digests
    assert set(os.listdir(tmp_path / "runs" / ".staging")) <= {"guard"}


def test_half_a_policy_at_the_place_gives_way(tmp_path):
    store = Store.open(str(tmp_path / "runs"))
    digest = write(tmp_path / "start", b"abc", b"de")
    write(tmp_path / "runs" / ".policies" / digest, b"abc")
    assert fetch_policy(store, share_policy(store, tmp_path / "start", digest), digest)
    assert list((tmp_path / "runs" / ".staging").iterdir()) == []
