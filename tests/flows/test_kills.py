"""SIGKILL of an iteration's whole process group at random moments: the same command again goes on, and nothing is
lost."""

import json
import os
import subprocess
import sys

import pytest


def killed(folder, kills: int, seed: int, mutant: str = "") -> dict:
    command = [sys.executable, "-m", "tests.flows.scripted", str(folder / "store"), str(kills), str(seed), mutant]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_twenty_kills_lose_no_row_and_redo_no_committed_shard(tmp_path):
    found = killed(tmp_path, 20, 7)
    assert found["kills"] >= 20
    assert found["kept"] > 0  # some kills came after a shard was committed
    assert (found["lost"], found["redone"], found["staged"]) == ([], 0, [])


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "kills"), [("never_found", 0), ("manifest_first", 20)])
def test_a_store_with_a_known_fault_is_seen(tmp_path, mutant, kills):
    assert killed(tmp_path, kills, 7, mutant)["redone"] > 0
