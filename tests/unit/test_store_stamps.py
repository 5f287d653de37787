"""Weights are hashed once on a machine, and a file that changed is hashed again."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r3l.store.files import stamps
from r3l.store.policies.snapshots import optimiser_digest, snapshot_digest

BYTES = 3_000_000


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], int]:
    """How many bytes of weights were read since it was asked the last time."""
    count = 0

    class Counted(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            nonlocal count
            content = super().read(size) or b""
            count += len(content)
            return content

    def opened(path: Path, mode: str) -> Any:
        return Counted(str(path), mode)

    def since() -> int:
        nonlocal count
        before, count = count, 0
        return before

    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stamps, "open", opened, raising=False)
    return since


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy that was written a while ago."""
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"w" * BYTES)
    (folder / "config.json").write_text("{}")
    for path in folder.iterdir():
        os.utime(path, (1_000, 1_000))
    return folder


def test_weights_are_read_once_wherever_the_folder_is_moved_to(policy, bytes_read, tmp_path):
    digest = snapshot_digest(policy)
    assert bytes_read() == BYTES + 2
    assert snapshot_digest(policy) == optimiser_digest(policy) == digest
    assert snapshot_digest(policy.rename(tmp_path / "moved")) == digest
    assert bytes_read() == 0
    assert snapshot_digest(tmp_path / "moved", verify=True) == digest
    assert bytes_read() == BYTES + 2


def test_a_change_is_noticed_in_place_and_by_another_file_of_the_same_size_and_time(policy, bytes_read):
    file = policy / "model.safetensors"
    before = snapshot_digest(policy)
    with open(file, "r+b") as opened:
        opened.write(b"v")
    changed = snapshot_digest(policy)
    assert changed != before
    os.utime(file, (1_000, 1_000))
    (policy / "other").write_bytes(b"u" * BYTES)
    os.utime(policy / "other", (1_000, 1_000))
    (policy / "other").replace(file)
    assert snapshot_digest(policy) not in (before, changed)


def test_what_was_written_just_now_may_change_again_within_the_same_tick(policy, bytes_read, monkeypatch):
    os.utime(policy / "config.json")
    snapshot_digest(policy)
    snapshot_digest(policy)
    assert bytes_read() == 2 * (BYTES + 2)
    monkeypatch.setattr(stamps, "WORTH_WAITING", BYTES)  # of so many bytes it is waited until they can be told
    os.utime(policy / "config.json")
    snapshot_digest(policy)
    snapshot_digest(policy)
    assert bytes_read() == BYTES + 2


def test_a_torn_note_is_none_and_old_ones_go(policy, bytes_read, tmp_path, monkeypatch):
    digest = snapshot_digest(policy)
    (note,) = (tmp_path / "cache" / "digests").iterdir()
    note.write_text(digest[:7])
    assert snapshot_digest(policy) == digest
    assert bytes_read() == 2 * (BYTES + 2)
    monkeypatch.setattr(stamps, "KEPT", 1)
    os.utime(policy / "config.json", (2_000, 2_000))
    snapshot_digest(policy)
    assert len(list(note.parent.iterdir())) == 1
