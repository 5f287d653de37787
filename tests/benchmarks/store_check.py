"""`r3l check` of a long run, and what going on with it costs: `python -m tests.benchmarks.store_check [ITERATIONS]`
(100)."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable

from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.policies.snapshots import latest_policy
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration


def timed(what: str, work: Callable[[], object]) -> None:
    began, worked = time.perf_counter(), time.process_time()
    result = work()
    print(
        f"{what:<60} {time.perf_counter() - began:7.3f} s ({time.process_time() - worked:.3f} s of the processor)  "
        f"{result}"
    )


def resume(store: Store, iterations: int) -> int:
    """What a run does before it works on: the next iteration, its policy, sweeping, and the last iteration's stages
    found again."""
    assert store.next_iteration("demo") == iterations
    assert latest_policy(store, "demo") is not None
    store.sweep("demo")
    refs = store.stages("demo", iteration=iterations - 1)
    return sum(store.find(ref.key, ref.fingerprint) == ref for ref in refs)


def main(iterations: int = 100) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        for iteration in range(iterations):
            commit_iteration(store, iteration=iteration)
        print(f"{iterations} iterations, {len(store.stages('demo'))} stages, {len(store.files.paths('demo'))} files")
        timed(
            "check: manifests, hashes, lineage, seven invariants", lambda: f"{len(check_run(store, 'demo'))} findings"
        )
        timed("resume: next iteration, policy, sweep, stages found", lambda: f"{resume(store, iterations)} found")
        timed("connect: views over every file", lambda: connect(store) and "")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
