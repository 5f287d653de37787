"""SIGKILL at random moments of a sequence of commits loses nothing, does nothing twice and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.store_killing import STAIRS


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
        "lost": 0,
        "made_again": 0,
        "findings": 0,
        "other_digests": 0,
        "left_over": 0,
    }


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["never_found", "manifest_first"])
def test_a_store_with_a_known_fault_is_seen(mutant: str):
    assert killed(0, 0, mutant)["made_again"] > 0
