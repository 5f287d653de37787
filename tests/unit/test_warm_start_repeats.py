"""A warm start of the household gives the same weights whatever the load, the threads and the order of sets."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from r3l.lab.warm_start import train
from r3l.lab.warm_start.household import start

OTHER_PROCESS = """
import sys
from pathlib import Path
from tests.unit.test_warm_start_repeats import latent_digest
print(latent_digest(Path(sys.argv[1])))
"""


def latent_digest(folder: Path) -> str:
    """Return the digest of a latent policy of a few steps, and of the easy one that it goes on from, made in
    `folder`."""
    start.RECIPES |= {
        "easy": replace(start.RECIPES["easy"], demonstrations=20, steps=4, layers=2),
        "latent": replace(start.RECIPES["latent"], demonstrations=10, steps=3),
    }
    made = start.household_start(folder / "household-latent-1-4", "latent", 4, measured_tasks=0, forgets=1.0)
    return f"{start.snapshot_digest(folder / 'household-easy-4')} {made['digest']}"


class Clock:
    """A clock on which every look takes five minutes: a machine under load."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 300.0
        return self.seconds


@pytest.mark.slow
def test_the_same_weights_in_another_process_under_load_and_with_other_threads(tmp_path, monkeypatch):
    other = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "other")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path.cwd())},
    )
    monkeypatch.setattr(start, "RECIPES", dict(start.RECIPES))
    monkeypatch.setattr(train, "time", Clock())
    step, threads = train.one_step, set[int]()

    def one_step(*args: Any) -> float:
        threads.add(torch.get_num_threads())
        return step(*args)

    monkeypatch.setattr(train, "one_step", one_step)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert latent_digest(tmp_path / "here") == other.stdout.splitlines()[-1]
        assert threads == {1}  # sums on several part from these after some more steps
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
