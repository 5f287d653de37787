"""Every world on two worker processes: ``python -m tests.benchmarks.worlds_by_two [--tasks N] [environment ...]``.
Random play, then a rollback of every episode to every one of its turns. Seconds by the clock and of the workers'
processors; a line of JSON each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from r3l.config.environments import AnyEnvironment, EnvironmentSettings
from r3l.environments import make_world
from r3l.environments.workers.pool import WorldPool
from r3l.exploration.explorer import Explorer, Limits
from r3l.exploration.stages import base_stage
from r3l.records import Episode, SamplingPlan, Task
from tests.benchmarks.soak import SETTINGS, Policy, descendants
from tests.support.fakes import CharChat, ScriptedEngine

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def processor_s(pids: set[int]) -> float:
    """Processor seconds of these processes so far."""
    fields = [(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()) for pid in pids]
    return sum(int(found[11]) + int(found[12]) for found in fields) / TICKS_PER_S


def rollbacks_ms(pool: WorldPool, tasks: list[Task], bases: list[Episode]) -> list[float]:
    """The time of each rollback, one after another, from the call to the session that stands at the pivot."""
    by_slot, times = {task.task: task for task in tasks}, []
    for base in bases:
        actions, seen = [turn.action for turn in base.turns], [turn.observation for turn in base.turns]
        for pivot in range(len(actions)):
            began = time.perf_counter()
            rolled = pool.rollback("again", by_slot[base.trajectory.task], actions[:pivot], seen[: pivot + 1]).result()
            times.append(1e3 * (time.perf_counter() - began))
            assert rolled.diverged_at is None, f"{base.trajectory.trajectory_id} diverged at {rolled.diverged_at}"
            pool.end("again").result()
    return times


def measure(environment: str, number: int, root: str) -> dict[str, Any]:
    settings: EnvironmentSettings = TypeAdapter(AnyEnvironment).validate_python(
        {"kind": environment, "data_root": root, "workers": 2, **SETTINGS[environment], "step_timeout_s": 120}
    )
    world = make_world(settings)
    tasks = [
        Task(0, slot, one.task_id, one.environment, one.split, one.task_type, one.payload, one.seed)
        for slot, one in enumerate(world.tasks("train")[:number])
    ]
    with WorldPool(settings) as pool:
        explorer = Explorer(
            world,
            pool,
            ScriptedEngine(Policy(environment, 0)),
            CharChat(),
            "none",  # type: ignore[arg-type]
            Limits(settings.max_turns, 512, 1.0),
        )
        base_stage(explorer, tasks, SamplingPlan(bases=1))  # machines start, games load
        workers = descendants(os.getpid())
        steps, spent, began = pool.counts()["steps"], processor_s(workers), time.perf_counter()
        bases = base_stage(explorer, tasks, SamplingPlan(bases=8))
        seconds, spent, steps = (
            time.perf_counter() - began,
            processor_s(workers) - spent,
            pool.counts()["steps"] - steps,
        )
        times = rollbacks_ms(pool, tasks, bases[:8])
        counts = pool.counts()
    return {
        "environment": environment,
        "episodes": len(bases),
        "steps": steps,
        "episodes_per_s": round(len(bases) / seconds, 1),
        "worker_ms_per_step": round(1e3 * spent / steps, 3),
        "rollbacks": len(times),
        "rollback_ms": round(statistics.median(times), 2),
        "restores": counts["restores"],
        "replays": counts["replays"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(".")[0])
    parser.add_argument("environments", nargs="*", help="empty: all that can run here")
    parser.add_argument("--tasks", type=int, default=6)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        for name in asked.environments or SETTINGS:
            print(json.dumps(measure(name, asked.tasks, root)), flush=True)


if __name__ == "__main__":
    main()
