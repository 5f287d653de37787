"""Rollout seconds per turn, R3L beside GRPO on one engine, and seconds to load a policy snapshot.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python -m tests.benchmarks.seconds_per_turn [--environment household]
    [--tasks 8]

Both play the same tasks with the same N through the pipeline's own stages, shards side by side as in a run, with an
engine that has just loaded the policy; in turns, the best of --repeats each. A turn is one reply to an observation of
the environment: R3L's reflections are no turns, their time counts. CPU seconds are those of this process and of the
environments' workers. Last, R3L once more with a barrier after each stage, all shards at once in each: what each stage
costs, and what the barriers would.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from r3l.config import Config, compose
from r3l.engines import make_engine
from r3l.engines.base import Engine, PolicySnapshot
from r3l.engines.chat_format import ChatFormat
from r3l.environments import make_world
from r3l.environments.workers.pool import WorldPool
from r3l.exploration.explorer import Explorer
from r3l.exploration.stages import base_stage, distilled_stage, reflections_stage, retries_stage
from r3l.methods import plan
from r3l.pipeline.stages.task_batch import draw
from r3l.pipeline.workbench import limits
from r3l.records import SamplingPlan, Task
from tests.benchmarks.served_vllm import spent


@dataclass(frozen=True)
class Cost:
    turns: int
    replies: int  # turns and reflections
    cpu: float
    clock: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="embedded")
    parser.add_argument("--environment", default="alfworld")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    settings = [f"rollout.tasks={options.tasks}", "engine.kind=transformers_local", "engine.threads=1"]
    configs = {
        method: compose(policy=options.policy, environment=options.environment, method=method, assignments=settings)
        for method in ("grpo", "paper")
    }
    config = configs["grpo"]
    engine, snapshot = make_engine(config.engine, config.policy), PolicySnapshot(config.policy.path, "benchmark")
    print(f"load_policy of {options.policy}: {min(seconds_to_load(engine, snapshot) for _ in range(5)) * 1000:.0f} ms")
    with WorldPool(config.environment) as pool:
        explorer = Explorer(
            make_world(config.environment), pool, engine, ChatFormat.load(config.policy.path), "", limits(config)
        )
        rollout(explorer, configs["paper"], draw(config, 0))  # workers started, files read
        costs: dict[str, list[Cost]] = {method: [] for method in configs}
        for repeat in range(options.repeats):
            for method, chosen in configs.items():
                engine.load_policy(snapshot)
                costs[method].append(measured(explorer, chosen, draw(chosen, 1 + repeat)))
        engine.load_policy(snapshot)
        stages = by_stage(explorer, configs["paper"], draw(configs["paper"], 1))
    for side in ("cpu", "clock"):
        best = {method: min(getattr(cost, side) / cost.turns for cost in found) for method, found in costs.items()}
        print(
            f"{side:5} seconds a turn: GRPO {best['grpo']:.4f}, R3L {best['paper']:.4f}, ratio "
            f"{best['paper'] / best['grpo']:.2f}"
        )
    for method, found in costs.items():
        print(
            f"  {method}: "
            + "; ".join(
                f"{cost.turns} turns, {cost.replies - cost.turns} reflections, {cost.cpu:.1f} CPU-s, {cost.clock:.1f} s"
                for cost in found
            )
        )
    for stage, cost in stages.items():
        print(f"  alone, {stage}: {cost.turns} turns, {cost.replies} replies, {cost.cpu:.2f} CPU-s, {cost.clock:.1f} s")
    engine.close()


def seconds_to_load(engine: Engine, snapshot: PolicySnapshot) -> float:
    started = time.perf_counter()
    engine.load_policy(snapshot)
    return time.perf_counter() - started


def cpu() -> float:
    process = psutil.Process()
    return sum(spent(part) for part in [process, *process.children(recursive=True)])


def measured(explorer: Explorer, config: Config, tasks: Sequence[Task]) -> Cost:
    before = cpu(), time.perf_counter()
    turns, replies = rollout(explorer, config, tasks)
    return Cost(turns, replies, cpu() - before[0], time.perf_counter() - before[1])


def by_stage(explorer: Explorer, config: Config, tasks: Sequence[Task]) -> dict[str, Cost]:
    """What bases, reflections and retries cost where each waits for all of the one before."""
    wanted = plan(config.method, config.rollout.group_size)
    costs: dict[str, Cost] = {}

    def timed(stage: str, calls: list[Callable[[], Any]], are_turns: bool) -> list[Any]:
        before = cpu(), time.perf_counter()
        found = list(threads.map(lambda call: call(), calls))
        clock = time.perf_counter() - before[1]
        replies = sum(len(one.turns) if are_turns else 1 for shard in found for one in shard)
        costs[stage] = Cost(replies if are_turns else 0, replies, cpu() - before[0], clock)
        return found

    shards = shards_of(config, tasks)
    with ThreadPoolExecutor(len(shards)) as threads:
        bases = timed("base", [partial(base_stage, explorer, shard, wanted) for shard in shards], True)
        reflections = timed(
            "reflections",
            [
                partial(reflections_stage, explorer, shard, wanted, base, base, 0)
                for shard, base in zip(shards, bases, strict=True)
            ],
            False,
        )
        timed(
            "retries",
            [
                partial(retries_stage, explorer, shard, wanted, base, base, reflection)
                for shard, base, reflection in zip(shards, bases, reflections, strict=True)
            ],
            True,
        )
    return costs


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


if __name__ == "__main__":
    main()
