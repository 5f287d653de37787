"""Ten whole iterations in one process leave nothing of themselves behind in it (slow: minutes)."""

import json
import os
import subprocess
import sys
from statistics import median

import pytest

ITERATIONS, SETTLED = 10, 4  # from iteration 4 on everything that is loaded late has been loaded
GROWTH_MB = 40  # over five iterations, of some 600: what an allocator may keep


def grown(rows: list[dict[str, int]], what: str) -> float:
    """How much more of it there is at the end than once it had settled: medians of three iterations each."""
    values = [row[what] for row in rows[SETTLED:]]
    return median(values[-3:]) - median(values[:3])


def test_a_leak_is_told_from_a_late_start():
    late = [{"files": 6}, {"files": 6}, {"files": 9}, *[{"files": 12}] * 4, {"files": 13}, *[{"files": 12}] * 2]
    assert grown(late, "files") == 0
    assert grown([{"files": 6 + iteration} for iteration in range(ITERATIONS)], "files") == 3


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_ten_iterations_in_one_process_leave_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "tests.support.iterations_in_one", str(tmp_path / "store"), str(ITERATIONS)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["iteration"] for row in rows] == list(range(ITERATIONS))
    assert {row["children"] for row in rows} == {0}, rows
    assert grown(rows, "files") <= 0, rows
    assert grown(rows, "threads") <= 0, rows
    assert grown(rows, "resident_mb") < GROWTH_MB, rows
