"""A writer of two small iterations, killed at random moments and started again until it is through: what is lost, what is done twice?

    python -m tests.store_killing SEED KILLS     (prints one JSON object)
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from r3l.store.check import check_run
from r3l.store.layout import StageKey
from r3l.store.stage import Store, fingerprint
from tests.store_iteration import commit_stage, iteration_tables

ITERATIONS = 2


def write(root: str) -> None:
    """What a flow does: lock, sweep, and of every stage find it or commit it."""
    store = Store.open(root)
    for iteration in range(ITERATIONS):
        with store.writer_lock("demo", "", iteration):
            store.sweep("demo")
            parents = []
            for stage, tables in iteration_tables(iteration).items():
                key = StageKey("demo", "", iteration, stage, None if stage in {"tasks", "updates"} else 0)
                mark = fingerprint(stage, {}, [parent.fingerprint for parent in parents], "p0", 5)
                parents = [store.find(key, mark) or commit_stage(store, stage, tables, parents, "demo", iteration)]


def in_child(work: Callable[[], None], kill_after: float | None) -> bool:
    """Run it in a process of its own, killed after so many seconds. Returns whether it came to its end."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] == 0


def committed(root: str) -> dict[str, str]:
    """manifest path -> its time: a stage that is made again gets another one."""
    store = Store.open(root)
    return {str(ref.key): store.manifest(ref)["committed_at"] for ref in store.stages("demo")}


def campaign(kills: int, chance: random.Random, seconds: float, expected: list[str]) -> dict[str, int]:
    """One store: killed up to `kills` times, each time after a few commits, then let through."""
    counts = dict.fromkeys(("kills", "lost", "made_again", "findings", "other_digests", "left_over"), 0)
    with tempfile.TemporaryDirectory() as root:
        seen: dict[str, str] = {}
        through = False
        while not through:
            through = in_child(lambda: write(root), chance.uniform(0, seconds) if counts["kills"] < kills else None)
            counts["kills"] += not through
            now = committed(root)
            counts["lost"] += len(seen.keys() - now.keys())
            counts["made_again"] += sum(now[key] != seen[key] for key in seen if key in now)
            seen = now
        store = Store.open(root)
        counts["findings"] += len(check_run(store, "demo"))
        counts["other_digests"] += [ref.digest for ref in store.stages("demo")] != expected
        counts["left_over"] += len(os.listdir(f"{root}/.staging")) - 1  # the guard stays
    return counts


def main(seed: int, kills: int, per_store: int = 20) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as root:
        began = time.monotonic()
        in_child(lambda: write(root), None)
        seconds = time.monotonic() - began
        expected = [ref.digest for ref in Store.open(root).stages("demo")]
    chance = random.Random(seed)
    totals: dict[str, Any] = {"seconds_undisturbed": round(seconds, 3), "stores": 0}
    while totals.get("kills", 0) < kills:
        for name, count in campaign(min(per_store, kills), chance, seconds / 4, expected).items():
            totals[name] = totals.get(name, 0) + count
        totals["stores"] += 1
    return totals


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
