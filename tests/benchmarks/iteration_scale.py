"""A whole iteration of many trajectories, the policy scripted: `python -m tests.benchmarks.iteration_scale
[TRAJECTORIES] [PER_SHARD]`.

The flow run, its tasks, the stages, the store and the questions are the real ones; the world is a corridor in this
process, the engine answers at once, and the update is a script that writes a policy. 1,000 trajectories (bases,
retries, distilled), 25 tasks a shard.
"""

import flows  # noqa: F401, I001 - before Prefect, which reads as it is imported what this sets

import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from flows.tasks import RUNNER, PrefectRunner
from r3l.config import compose
from r3l.engines.base import PolicySnapshot
from r3l.exploration.progress import Progress
from r3l.pipeline.iteration import run_stages
from r3l.pipeline.policies import Policies
from r3l.pipeline.settings.continuing import save_config
from r3l.pipeline.stages import calls
from r3l.pipeline.update import process
from r3l.pipeline.workbench import Workbench
from r3l.records import Task
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.query import query
from r3l.store.stage import Store
from tests.flows.scripted import FIGURES, UPDATE
from tests.support.fakes import explorer
from tests.support.rehearsal import walker

TRAJECTORIES_PER_TASK = 12  # four bases, four retries, four distilled
AUDITED = {
    "iterations": "SELECT * FROM iterations",
    "pivots": "SELECT outcome, count(*), avg(gain) FROM pivots GROUP BY outcome",
    "groups": "SELECT mixed, count(*), avg(positive_mass) FROM groups GROUP BY mixed",
    "account": "SELECT * FROM account",
    "one group's turns": "SELECT * FROM turns WHERE trajectory_id LIKE 'iteration=0/task=7/%'",
}


class Memory(threading.Thread):
    """Resident megabytes of this process, by how many shards were done."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(daemon=True)
        self.progress, self.seen, self.ended = progress, dict[int, int](), threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.25):
            done = int(self.progress.snapshot().get("training_rows", {}).get("shards", 0))
            self.seen[done] = max(self.seen.get(done, 0), resident())


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


@flow(name="r3l-scale", task_runner=RUNNER)
def simulated(bench: Any) -> int:
    """The stages, and how many task runs the server has of them."""
    run_stages(bench.value)
    with get_client(sync_client=True) as client:
        return count(client, flow_run.id)


def count(client: Any, run: str) -> int:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    of, before, now = FlowRunFilter(id=FlowRunFilterId(any_=[run])), -1, 0
    while now != before:  # task runs are told to the server by events, some of which are still on their way
        time.sleep(5)
        before, now = now, 0
        while found := client.read_task_runs(flow_run_filter=of, limit=200, offset=now):
            now += len(found)
    return now


def measured(trajectories: int, per_shard: int) -> dict[str, Any]:
    many = max(per_shard, trajectories // TRAJECTORIES_PER_TASK)
    with tempfile.TemporaryDirectory() as root:
        config = compose(
            run="scale",
            assignments=[
                f"rollout.tasks={many}",
                "rollout.group_size=8",
                f"rollout.tasks_per_shard={per_shard}",
                "rollout.shards_in_flight=4",
                f"store.root={root}",
            ],
        )
        world = explorer(walker)
        Workbench._start = lambda self: world  # type: ignore[method-assign]
        calls.draw = lambda config, iteration: [  # type: ignore[attr-defined]
            Task(iteration, k, f"corridor/{k}", "corridor", "train", "walk", "{}", 7 + k) for k in range(many)
        ]
        process._command = lambda *_: [sys.executable, "-S", "-c", UPDATE, _[0], json.dumps(FIGURES)]  # type: ignore[attr-defined]
        store, progress = Store.open(root), Progress()
        snapshot = PolicySnapshot(root, "policy-0")
        policies = Policies(snapshot, snapshot, snapshot, None, None, optimiser="")
        save_config(store, config, 0)
        memory = Memory(progress)
        memory.start()
        began, worked, before = time.monotonic(), time.process_time(), resident()
        runs = simulated(SimpleNamespace(value=Workbench(config, store, 0, policies, progress, runner=PrefectRunner())))
        memory.ended.set()
        return asked(
            store,
            {
                "seconds": time.monotonic() - began, "processor": time.process_time() - worked, "task runs": runs,
                "shards": -(-many // per_shard), "MB before": before, "MB by shards done": sampled(memory.seen),
            },
        )  # fmt: skip


def sampled(seen: dict[int, int]) -> dict[int, int]:
    """About eight of them."""
    keys = sorted(seen)
    return {key: seen[key] for key in sorted({*keys[:: max(1, len(keys) // 8)], keys[-1]})}


def asked(store: Store, figures: dict[str, Any]) -> dict[str, Any]:
    """The figures, and those of questions to the store."""
    with connect(store) as connection:
        made = query(connection, "SELECT count(*) AS n FROM trajectories").to_pylist()[0]["n"]
        per_stage = "SELECT stage, sum(seconds) AS s, sum(bytes)::BIGINT AS b FROM stages GROUP BY stage ORDER BY stage"
        seconds = query(connection, per_stage).to_pylist()
        figures |= {
            "trajectories": made,
            "stage seconds, summed": {row["stage"]: round(row["s"], 1) for row in seconds},
            "bytes": sum(row["b"] for row in seconds),
        }
        figures["questions: seconds, processor seconds"] = {
            name: timed(lambda sql=sql: query(connection, sql)) for name, sql in AUDITED.items()
        }
    figures["connect: seconds, processor seconds"] = timed(lambda: connect(store).close())
    figures["check: seconds, processor seconds"] = timed(lambda: check_run(store, "scale"))
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in figures.items()}


def timed(work: Callable[[], Any]) -> list[float]:
    """Seconds by the clock and of the processor: on a machine with other work only the second say something."""
    began, worked = time.monotonic(), time.process_time()
    work()
    return [round(time.monotonic() - began, 3), round(time.process_time() - worked, 3)]


def main(trajectories: int = 1000, per_shard: int = 25) -> None:
    print(json.dumps(measured(trajectories, per_shard), indent=1))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]))
