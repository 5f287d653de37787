"""One shard's stages as a chain: each waits for its own predecessors only, so that shards are in flight side by
side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from r3l.pipeline.runner import Coming
from r3l.pipeline.stages import calls
from r3l.pipeline.workbench import Workbench
from r3l.records import SamplingPlan
from r3l.store.layout import StageRef


@dataclass
class Chain:
    """The futures of one shard: base and its verdicts, as many rounds of reflect, retry, stitch as the plan has,
    credit, training rows."""

    base: list[Coming] = field(default_factory=list)
    oracle_pivots: list[Coming] = field(default_factory=list)
    reflections: list[Coming] = field(default_factory=list)
    retries: list[Coming] = field(default_factory=list)
    distilled: list[Coming] = field(default_factory=list)
    credit: list[Coming] = field(default_factory=list)
    training_rows: list[Coming] = field(default_factory=list)

    def all(self) -> list[Coming]:
        """In the order in which they can end."""
        return [
            *self.base,
            *self.oracle_pivots,
            *self.reflections,
            *self.retries,
            *self.distilled,
            *self.credit,
            *self.training_rows,
        ]


def submit(bench: Workbench, plan: SamplingPlan, batch: StageRef, shard: int, chain: Chain) -> None:
    """Submit a shard's stages into `chain`; each waits only for its own predecessors."""
    begin = bench.runner.submit
    if bench.wants("base"):
        chain.base.append(begin(calls.sample_bases, bench, batch, shard))
    if bench.asks_oracle:
        chain.oracle_pivots.append(begin(calls.find_oracle_pivots, bench, batch, chain.base[0], shard))
    for round_ in range(plan.retries_per_base if plan.reflection != "none" else 0):
        reflect_and_retry(bench, chain, batch, shard, round_)
    if bench.wants("credit"):
        chain.credit.append(begin(calls.assign_credit, bench, chain.base[0], chain.retries, chain.distilled, shard))
    if bench.wants("training_rows"):
        parents = (chain.base[0], chain.reflections, chain.retries, chain.distilled, chain.credit[0])
        chain.training_rows.append(begin(calls.write_training_rows, bench, *parents, shard))


def reflect_and_retry(bench: Workbench, chain: Chain, batch: StageRef, shard: int, round_: int) -> None:
    """One round: reflect on the newest attempts, retry from the pivots, stitch."""
    begin, base, before = bench.runner.submit, chain.base[0], list(chain.distilled)
    if bench.wants("reflections"):
        chain.reflections.append(begin(calls.reflect, bench, batch, base, before, shard, round_))
    if bench.wants("retries"):
        chain.retries.append(begin(calls.retry, bench, batch, base, before, chain.reflections[-1], shard, round_))
    if bench.wants("distilled"):
        chain.distilled.append(begin(calls.stitch, bench, base, before, chain.retries[-1], shard, round_))


def shard_stages(bench: Workbench, batch: StageRef, shards: Sequence[int]) -> list[StageRef]:
    """All stages of these shards, once they are committed. Up to `shards_in_flight` shards are worked on at once."""
    plan, chains, most = calls.plan_of(bench), list[Chain](), bench.config.rollout.shards_in_flight
    with ended_together(bench, chains):
        for place, shard in enumerate(shards):
            if place >= most:
                chains[place - most].all()[-1].wait()
            chains.append(Chain())
            submit(bench, plan, batch, shard, chains[-1])
        return [future.result() for chain in chains for future in chain.all()]


@contextmanager
def ended_together(bench: Workbench, chains: Sequence[Chain]) -> Iterator[None]:
    """Where one stage fails or the work is ended, end what the others wait for, and wait until they have ended."""
    try:
        yield
    except BaseException as error:
        bench.close(bench.runner.ending(error) or f"another stage failed: {error}")
        bench.runner.settle([future for chain in chains for future in chain.all()])
        raise
