"""What a process has freed goes back to the system, though blocks in use lie between."""

import ctypes
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from r3l.pipeline import iteration

FREED = """
import threading
import psutil
from r3l.system.memory import give_back

def resident() -> float:
    return psutil.Process().memory_info().rss / 2**20

kept = []

def fill() -> None:
    blocks = [bytearray(2_000) for _ in range(50_000)]  # 100 MB from the C allocator, in an arena of this thread
    kept.extend(blocks[::1_000])  # they hold the arena's end in place

thread = threading.Thread(target=fill)
thread.start()
thread.join()
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library keeps no freed memory")
def test_what_is_free_between_blocks_in_use_is_given_back():
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 50


def test_an_iteration_gives_back_once_its_work_is_closed(monkeypatch):
    done: list[str] = []
    runner = SimpleNamespace(heeding_cancel=lambda close: nullcontext(), ending=lambda error: "")
    monkeypatch.setattr(iteration.memory, "give_back", lambda: done.append("given back"))
    with iteration.working(SimpleNamespace(runner=runner, close=lambda: done.append("closed"))):
        done.append("worked")
    assert done == ["worked", "closed", "given back"]
