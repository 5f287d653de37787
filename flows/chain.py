"""One shard's stages as a chain: each waits for its own predecessors only, so that shards are in flight side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prefect.task_runners import ThreadPoolTaskRunner

from flows import tasks
from flows.workbench import Workbench
from r3l.records import Plan
from r3l.store.layout import StageRef

MAX_THREADS = 256
Coming = Any  # the future of a StageRef: Prefect's types want the StageRef itself where a task is submitted
RUNNER: Any = ThreadPoolTaskRunner(max_workers=MAX_THREADS)


@dataclass
class Chain:
    """The futures of one shard: base and its verdicts, as many rounds of reflect, retry, stitch as the plan has, credit, training rows."""

    base: list[Coming] = field(default_factory=list)
    oracle_pivots: list[Coming] = field(default_factory=list)
    reflections: list[Coming] = field(default_factory=list)
    retries: list[Coming] = field(default_factory=list)
    distilled: list[Coming] = field(default_factory=list)
    credit: list[Coming] = field(default_factory=list)
    training_rows: list[Coming] = field(default_factory=list)

    def all(self) -> list[Coming]:
        """In the order in which they can end."""
        return [*self.base, *self.oracle_pivots, *self.reflections, *self.retries, *self.distilled, *self.credit, *self.training_rows]


def submit(bench: Workbench, plan: Plan, batch: StageRef, shard: int) -> Chain:
    """Submit a shard's stages; each waits only for its own predecessors."""
    chain = Chain()
    if bench.wants("base"):
        chain.base.append(tasks.base_task.submit(bench, batch, shard))
    if bench.judges:
        chain.oracle_pivots.append(tasks.oracle_pivots_task.submit(bench, batch, chain.base[0], shard))
    for round_ in range(plan.retries_per_base if plan.reflection != "none" else 0):
        reflect_and_retry(bench, chain, batch, shard, round_)
    if bench.wants("credit"):
        chain.credit.append(tasks.credit_task.submit(bench, chain.base[0], chain.retries, chain.distilled, shard))
    if bench.wants("training_rows"):
        chain.training_rows.append(tasks.training_rows_task.submit(
            bench, chain.base[0], chain.reflections, chain.retries, chain.distilled, chain.credit[0], shard))
    return chain


def reflect_and_retry(bench: Workbench, chain: Chain, batch: StageRef, shard: int, round_: int) -> None:
    """One round: reflect on the newest attempts, retry from the pivots, stitch."""
    before = list(chain.distilled)
    if bench.wants("reflections"):
        chain.reflections.append(tasks.reflections_task.submit(bench, batch, chain.base[0], before, shard, round_))
    if bench.wants("retries"):
        chain.retries.append(tasks.retries_task.submit(bench, batch, chain.base[0], before, chain.reflections[-1], shard, round_))
    if bench.wants("distilled"):
        chain.distilled.append(tasks.distilled_task.submit(bench, chain.base[0], before, chain.retries[-1], shard, round_))


def chained(bench: Workbench, plan: Plan, batch: StageRef, shard: int) -> list[StageRef]:
    """A shard's stages, once all of them are committed."""
    return [future.result() for future in submit(bench, plan, batch, shard).all()]
