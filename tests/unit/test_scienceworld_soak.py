"""Many episodes on worker processes: every one accounted for, and no Java machine left behind."""

import os
import random
import shutil
import time
from pathlib import Path

import pytest

pytest.importorskip("scienceworld", reason="the extra [scienceworld] is not installed")
from r3l.config.environments import ScienceWorldSettings
from r3l.environments import make_world
from r3l.environments.workers.pool import WorldPool
from r3l.errors import WorldError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("java") is None, reason="no Java: apt-get install default-jre-headless"),
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc"),
]
EPISODES, KILLED_AT = 200, 100


def processes() -> dict[int, tuple[int, str]]:
    """Process -> (parent, command), as the kernel lists them."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                found[int(entry.name)] = (int(fields[1]), (entry / "comm").read_text().strip())
            except OSError:
                continue  # it ended meanwhile
    return found


def descendants(root: int) -> dict[int, str]:
    listed, known = processes(), {root}
    while more := {pid for pid, (parent, _) in listed.items() if parent in known} - known:
        known |= more
    return {pid: listed[pid][1] for pid in known - {root}}


def test_two_hundred_episodes_leave_nothing_behind():
    settings = ScienceWorldSettings(memory_mb=256, workers=2)
    tasks = random.Random(0).sample(make_world(settings).tasks("train"), EPISODES)
    pool = WorldPool(settings)
    ended = failed = 0
    machines: set[int] = set()
    memory: list[int] = []
    for number, task in enumerate(tasks):
        session = f"episode={number}"
        try:
            assert pool.start(session, task).result(120).text
            for action in ("look around", "inventory", "wait1"):
                assert pool.step(session, action).result(120).observation.text
            ended += 1
        except WorldError:
            failed += 1
        pool.end(session)
        here = {pid for pid, command in descendants(os.getpid()).items() if command == "java"}
        machines |= here
        assert len(here) <= 2, "one machine a worker"
        if number == KILLED_AT:
            os.kill(next(iter(here)), 9)
        if number in (40, EPISODES - 1):
            memory.append(max(resident_mb(pid) for pid in here))
    pool.close()
    assert ended + failed == EPISODES
    assert failed <= 1, "only the episode that met the dead machine"
    assert len(machines) == 3, "two, and the one that took the killed one's place"
    assert memory[1] < memory[0] + 200
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in machines) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in machines if Path(f"/proc/{pid}").exists()]


def resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) // 1024
