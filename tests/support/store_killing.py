"""A writer of two small iterations, killed and started again until it is through: what is lost, what is done twice?

In the first store the n-th start is killed before its n-th rename, in the others each start at a random moment.

python -m tests.support.store_killing SEED KILLS [MUTANT]     (prints one JSON object)
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from r3l.store.check import check_run
from r3l.store.layout import StageKey
from r3l.store.stage import Store, fingerprint
from tests.support.store_iteration import commit_stage, iteration_tables
from tests.support.store_mutants import MUTANTS

ITERATIONS = 2
STAIRS = 12  # renames: a stage of the most parts needs five, its lock and its manifest included
SUMMED = ("kills", "lost", "made_again", "findings", "other_digests", "left_over")


def write(root: str) -> None:
    """What a flow does: lock, sweep, and of every stage find it or commit it."""
    store = Store.open(root)
    for iteration in range(ITERATIONS):
        with store.writer_lock("demo", "", iteration):
            store.sweep("demo")
            parents = []
            for stage, tables in iteration_tables(iteration).items():
                key = StageKey("demo", "", iteration, stage, None if stage in {"tasks", "updates"} else 0)
                mark = fingerprint(stage, {}, [parent.fingerprint for parent in parents], "p0")
                parents = [store.find(key, mark) or commit_stage(store, stage, tables, parents, "demo", iteration)]


def killed_before_rename(work: Callable[[], None], number: int) -> None:
    """Do the work, but die before its rename of that number, counted from 1."""
    rename, left = os.rename, [number]

    def counting(source: str, target: str) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.rename = counting  # type: ignore[assignment]
    work()


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


def campaign(
    mutant: str, starts: Iterator[tuple[Callable[[str], None], float | None]], expected: list[str]
) -> dict[str, int]:
    """One store, and starts of its writer until one is through. Each start is the work and when to kill it."""
    counts = dict.fromkeys(SUMMED, 0)
    with tempfile.TemporaryDirectory() as root:
        seen: dict[str, str] = {}
        through = False
        while not through:
            work, kill_after = next(starts)
            through = in_child(lambda work=work: (MUTANTS[mutant](), work(root)), kill_after)  # type: ignore[misc]
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


def stairs() -> Iterator[tuple[Callable[[str], None], float | None]]:
    """The n-th start ends before its n-th rename: a crash at every place of a commit, without chance."""
    for number in range(1, STAIRS + 1):
        yield lambda root, number=number: killed_before_rename(lambda: write(root), number), None  # type: ignore[misc]
    while True:
        yield write, None


def at_random(
    kills: int, chance: random.Random, seconds: float
) -> Iterator[tuple[Callable[[str], None], float | None]]:
    for _ in range(kills):
        yield write, chance.uniform(0, seconds)
    while True:
        yield write, None


def main(seed: int, kills: int, mutant: str = "", per_store: int = 20) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as root:
        began = time.monotonic()
        in_child(lambda: write(root), None)
        seconds = time.monotonic() - began
        expected = [ref.digest for ref in Store.open(root).stages("demo")]
    chance = random.Random(seed)
    totals: dict[str, Any] = {"seconds_undisturbed": round(seconds, 3), "stores": 0} | dict.fromkeys(SUMMED, 0)
    while not totals["stores"] or totals["kills"] < kills:
        starts = at_random(min(per_store, kills), chance, seconds / 4) if totals["stores"] else stairs()
        for name, count in campaign(mutant, starts, expected).items():
            totals[name] += count
        totals["stores"] += 1
    return totals


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:4])))
