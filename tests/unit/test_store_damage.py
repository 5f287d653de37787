"""What can lie in a store in the place of what r3l wrote: each is told of, and nothing crashes, hangs or is passed
over."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r3l.store.check import check_run
from r3l.store.files.local import LocalFiles
from r3l.store.manifest import seal
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

CREDIT = "demo/iteration=00000/credit/shard=000"
MANIFEST = f"{CREDIT}/stage.json"
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Store:
    store = Store.open(str(tmp_path_factory.mktemp("whole")))
    for iteration in range(2):
        commit_iteration(store, "demo", iteration=iteration, code=1)
    return store


@pytest.fixture
def store(whole, tmp_path) -> Store:
    """A copy to damage."""
    return Store.open(str(shutil.copytree(whole.root, tmp_path / "store")))


def replaced(path: Path, make: Callable[[Path], Any]) -> None:
    path.unlink()
    make(path)


def said(store: Store) -> str:
    return "\n".join(map(str, check_run(store, "demo")))


def test_the_store_is_sound_before(whole):
    assert said(whole) == ""


@pytest.mark.parametrize("name", ["stage.json", "part"])
@pytest.mark.parametrize(("make", "what"), [
    (os.mkfifo, "is no regular file"),
    (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
    (lambda path: path.symlink_to(path.name), "can't be read"),  # a loop
    (lambda path: path.mkdir(), "is a folder"),
], ids=["pipe", "device", "loop", "folder"])  # fmt: skip
def test_only_regular_files_are_opened(store, name, make, what):
    folder = Path(store.root) / CREDIT
    path = next(one for one in folder.iterdir() if one.name.startswith(name))
    replaced(path, make)
    if name == "part" or what != "is a folder":
        assert what in said(store) or "missing" in said(store)
    assert "credit" in said(store)


MANIFESTS = {
    "deep JSON": lambda content: DEEP.encode(),
    "deep in a field": lambda content: json.dumps(content | {"settings": "DEEP"}).replace('"DEEP"', DEEP).encode(),
    "a version in text": lambda content: seal(content | {"schema_version": "3"}),
    "no metrics": lambda content: seal(content | {"metrics": None}),
    "seconds in words": lambda content: seal(content | {"metrics": {"seconds": ""}}),
    "a seed beyond its column": lambda content: seal(content | {"seed": 10**30}),
    "attempts in parts": lambda content: seal(content | {"metrics": {"attempts": 1.5}}),
    "no parts": lambda content: seal(content | {"parts": None}),
    "a part in text": lambda content: seal(content | {"parts": ["part-credit-0.parquet"]}),
    "a part elsewhere": lambda content: seal(content | {"parts": [content["parts"][0] | {"file": "../x.parquet"}]}),
    "rows in text": lambda content: seal(content | {"parts": [content["parts"][0] | {"rows": "4"}]}),
    "a parent without a stage": lambda content: seal(content | {"parents": [{"run": "demo"}]}),
    "a run that is a number": lambda content: seal(content | {"run": 7}),
    "an iteration in text": lambda content: seal(content | {"iteration": "0"}),
    "another stage": lambda content: seal(content | {"stage": "base"}),
    "a list": lambda content: b"[]",
    "nothing": lambda content: b"",
    "no text": lambda content: b"\xff\xfe",
}


@pytest.mark.parametrize("change", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_of_another_form_is_named(store, change):
    path = Path(store.root) / MANIFEST
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_bytes(change(content))
    assert f"files: {CREDIT}: " in said(store)


def test_a_deleted_stage_is_missed_by_what_was_made_from_it(store):
    shutil.rmtree(Path(store.root) / CREDIT)
    assert f"{MANIFEST}: missing, though training_rows was made from it" in said(store)


def test_an_iteration_after_a_gap_is_named(store):
    shutil.rmtree(Path(store.root) / "demo/iteration=00000/updates")
    assert "demo/iteration=00001: it follows no iteration 0 with an update" in said(store)


@pytest.mark.parametrize("name", ["iteration=00099", "iteration=-0001", "iteration=1"])
def test_a_renamed_iteration_is_named(store, name):
    folder = Path(store.root) / "demo"
    (folder / "iteration=00001").rename(folder / name)
    assert f"demo/{name}" in said(store)


def test_a_renamed_shard_is_named(store):
    folder = Path(store.root) / "demo/iteration=00000/credit"
    (folder / "shard=000").rename(folder / "shard=007")
    assert "this manifest belongs to" in said(store)


def test_a_file_that_nobody_names_is_told_of(store):
    part = next(Path(store.root).glob(f"{CREDIT}/part-credit-*.parquet"))
    shutil.copy(part, part.with_name("part-credit-0123456789abcdef.parquet"))
    assert "part-credit-0123456789abcdef.parquet: no manifest names it" in said(store)


def test_a_part_whose_writer_is_at_work_is_no_damage(store, monkeypatch):
    """A part is in its place before the manifest that names it."""
    part = next(Path(store.root).glob(f"{CREDIT}/part-credit-*.parquet"))
    shutil.copy(part, part.with_name("part-credit-0123456789abcdef.parquet"))
    with store.writer_lock("demo", "", 0):
        assert check_run(store, "demo") == []
    assert "part-credit-0123456789abcdef.parquet: no manifest names it" in said(store)
    part.with_name("part-credit-0123456789abcdef.parquet").unlink()
    sizes = store.files.sizes("demo")
    del sizes[f"{CREDIT}/stage.json"]  # as listed before the manifest came, by a writer that has ended since
    monkeypatch.setattr(LocalFiles, "sizes", lambda *_: sizes)
    assert "no manifest names it" not in said(store)
