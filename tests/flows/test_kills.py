"""SIGKILL of an iteration's whole process group at random moments: the same command again goes on, and nothing is lost."""

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.timeout(280)
def test_twenty_kills_lose_no_row_and_redo_no_committed_shard(tmp_path):
    command = [sys.executable, "-m", "tests.flows.scripted", str(tmp_path / "store"), "20", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"] >= 20
    assert found["kept"] > 0  # some kills came after a shard was committed
    assert (found["lost"], found["redone"], found["staged"]) == ([], 0, [])
