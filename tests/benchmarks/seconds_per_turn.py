"""What a rollout costs: shards side by side as in a run, through the pipeline's own stages.

A turn is one reply to an observation of the environment: R3L's reflections are no turns, their time counts. CPU seconds
are those of this process and of the environments' workers.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil

from r3l.config import Config
from r3l.exploration.explorer import Explorer
from r3l.exploration.stages import base_stage, distilled_stage, reflections_stage, retries_stage
from r3l.methods import plan
from r3l.records import SamplingPlan, Task
from tests.benchmarks.served_vllm import spent


@dataclass(frozen=True)
class Cost:
    turns: int
    replies: int  # turns and reflections
    cpu: float
    clock: float


def cpu() -> float:
    process = psutil.Process()
    return sum(spent(part) for part in [process, *process.children(recursive=True)])


def measured(explorer: Explorer, config: Config, tasks: Sequence[Task]) -> Cost:
    before = cpu(), time.perf_counter()
    turns, replies = rollout(explorer, config, tasks)
    return Cost(turns, replies, cpu() - before[0], time.perf_counter() - before[1])


def shards_of(config: Config, tasks: Sequence[Task]) -> list[Sequence[Task]]:
    size = config.rollout.tasks_per_shard
    return [tasks[first : first + size] for first in range(0, len(tasks), size)]


def rollout(explorer: Explorer, config: Config, tasks: Sequence[Task]) -> tuple[int, int]:
    """(turns, replies) of all shards, each a chain of stages of its own."""
    wanted = plan(config.method, config.rollout.group_size)
    shards = shards_of(config, tasks)
    with ThreadPoolExecutor(len(shards)) as threads:
        counts = list(threads.map(lambda shard: chain(explorer, wanted, shard), shards))
    return sum(turns for turns, _ in counts), sum(replies for _, replies in counts)


def chain(explorer: Explorer, wanted: SamplingPlan, tasks: Sequence[Task]) -> tuple[int, int]:
    bases = base_stage(explorer, tasks, wanted)
    turns = sum(len(base.turns) for base in bases)
    if wanted.reflection == "none":
        return turns, turns
    reflections = reflections_stage(explorer, tasks, wanted, bases, bases, 0)
    retries = retries_stage(explorer, tasks, wanted, bases, bases, reflections)
    distilled_stage(bases, retries)
    turns += sum(len(one.turns) for one in retries)
    return turns, turns + len(reflections)
