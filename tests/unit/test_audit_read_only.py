"""Whoever may only read a store can look at all of it: in the browser, and by every command that asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.store.stage import Store
from tests.support.read_only import READING, closed, lacking, read_only
from tests.support.store_iteration import commit_iteration


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=f"needs a process that can't override the modes of files: {lacking()}")
def test_a_store_that_can_not_be_written_to_is_shown(tmp_path):
    """No cache can be written either. `READING` tries to write first, so that it can't pass on a store that is open."""
    store = Store.open(str(tmp_path / "runs"))
    commit_iteration(store, "good")
    environment = os.environ | {"R3L_CACHE": "/proc/nowhere", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [*read_only(), sys.executable, "-c", READING, store.root, "good"]
    with closed(tmp_path / "runs"):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" = ", 1) for line in done.stdout.splitlines() if line.startswith(("audit ", "r3l ")))
    assert {what: came for what, came in said.items() if came != "ok"} == {}
    assert len([what for what in said if what.startswith("audit ")]) == 11
    assert len([what for what in said if what.startswith("r3l ")]) == 6
