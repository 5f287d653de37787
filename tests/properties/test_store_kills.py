"""SIGKILL at random moments of a sequence of commits loses nothing, does nothing twice and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.errors import StoreError
from r3l.store.check import check_run
from r3l.store.files.staging import GUARD
from r3l.store.stage import Store
from tests.support.store_killing import STAIRS, write


def killed(seed: int, kills: int, mutant: str = "") -> dict:
    command = [sys.executable, "-m", "tests.support.store_killing", str(seed), str(kills), mutant]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("seed", "kills"), [(0, 20), pytest.param(1, 1000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_kills_lose_nothing(seed: int, kills: int):
    found = killed(seed, kills)
    assert found["kills"] >= max(kills, STAIRS)
    assert {name: found[name] for name in ("lost", "made_again", "findings", "other_digests", "left_over")} == {
        "lost": 0, "made_again": 0, "findings": 0, "other_digests": 0, "left_over": 0,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["never_found", "manifest_first"])
def test_a_store_with_a_known_fault_is_seen(mutant: str):
    assert killed(0, 0, mutant)["made_again"] > 0


@pytest.mark.parametrize("number", [1, 2, 5, 12, 20])
def test_no_space_at_a_write_is_one_error_and_the_next_start_finishes(number: int, tmp_path, monkeypatch):
    real, left = os.fsync, [number]

    def fsync(handle: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise OSError(28, "No space left on device")
        real(handle)

    root = str(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreError, match="No space left on device"):
            write(root)
    store = Store.open(root)
    if store.runs():
        assert [one for one in check_run(store, "demo") if "no manifest names it" not in one.what] == []
    write(root)
    assert check_run(store, "demo") == []
    assert os.listdir(f"{root}/.staging") == [GUARD]
