"""Shards of a batch in flight side by side, and what ends together when one of them fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from r3l.pipeline.runner import Coming
from r3l.pipeline.stages.calls import CALLS, Chain, submit
from r3l.pipeline.workbench import Workbench
from r3l.store.layout import StageRef


def in_order(chain: Chain) -> list[Coming]:
    """Return a shard's futures in the order in which they can end."""
    return [future for stage in CALLS for future in chain[stage]]


def shard_stages(bench: Workbench, batch: StageRef, shards: Sequence[int]) -> list[StageRef]:
    """Return all stages of these shards, once they are committed. Up to `shards_in_flight` shards are worked on at
    once."""
    chains, most = list[Chain](), bench.config.rollout.shards_in_flight
    with ended_together(bench, chains):
        for place, shard in enumerate(shards):
            if place >= most:
                in_order(chains[place - most])[-1].wait()
            chains.append({stage: [] for stage in CALLS})
            submit(bench, batch, shard, chains[-1])
        return [future.result() for chain in chains for future in in_order(chain)]


@contextmanager
def ended_together(bench: Workbench, chains: Sequence[Chain]) -> Iterator[None]:
    """If one stage fails or the work is ended, end what the others wait for, and wait until they have ended."""
    try:
        yield
    except BaseException as error:
        bench.close(bench.runner.ending(error) or f"another stage failed: {error}")
        bench.runner.settle([future for chain in chains for future in in_order(chain)])
        raise
