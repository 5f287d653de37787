"""What Prefect costs: iterations of the embedded policy as a flow, and the same stages on plain threads."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    processor: float  # seconds of the command and all its processes, the Prefect server's too
    clock: float


def iteration(store: Path, direct: bool, settings: list[str]) -> Cost:
    """One `r3l iterate` of the side's own run."""
    words = [sys.executable, "-m", "flows.cli.app", "iterate", "--policy", "embedded", "--quiet"]
    words += ["--store", str(store), *settings]
    words += ["--run", "direct", "--direct"] if direct else ["--run", "prefect"]
    before, began = os.times(), time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    clock, after = time.perf_counter() - began, os.times()
    return Cost(after.children_user + after.children_system - before.children_user - before.children_system, clock)


def compared(rounds: int, warm: int, settings: list[str]) -> tuple[Cost, Cost]:
    """(with Prefect, without): the mean of as many iterations each, in turns, after `warm` each that are not counted
    (the first makes Prefect's database)."""
    with tempfile.TemporaryDirectory() as folder:
        both = [[iteration(Path(folder), direct, settings) for direct in (False, True)] for _ in range(warm + rounds)]
    sides = list(zip(*both[warm:], strict=True))
    prefect, plain = (Cost(*(sum(column) / rounds for column in zip(*side, strict=True))) for side in sides)
    return prefect, plain
