"""Shards of a batch in flight side by side, and what ends together when one of them fails."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from r3l.pipeline.logs import log
from r3l.pipeline.runner import Coming, waited_for
from r3l.pipeline.stages import calls, stage_io
from r3l.pipeline.stages.calls import CALLS, plan_of
from r3l.pipeline.workbench import Workbench
from r3l.stages import STAGES, stages_that
from r3l.store.layout import StageRef

Chain = dict[str, list[Coming]]  # of one shard: stage -> its futures, one per round
IN_ROUNDS = stages_that(lambda stage: stage.rounds)


def in_order(chain: Chain) -> list[Coming]:
    """List a shard's futures in the order in which they can end."""
    return [future for stage in CALLS for future in chain[stage]]


def submit(bench: Workbench, batch: StageRef, shard: int, chain: Chain) -> None:
    """Submit a shard's stages into `chain`. Each waits for its own parents only, so that shards are in flight side by
    side."""
    for stage, round_ in steps(bench):
        of_round = [round_] if STAGES[stage].rounds else []
        chain[stage].append(
            bench.runner.submit(CALLS[stage], bench, batch, parents(stage, batch, chain), shard, *of_round)
        )


def steps(bench: Workbench) -> Iterator[tuple[str, int]]:
    """Yield the stages of a shard in the order of the pipeline, each with its round. Those of a round (reflect, retry,
    stitch) follow one another before the next round begins."""
    plan = plan_of(bench)
    rounds = plan.retries_per_base if plan.reflection != "none" else 0
    left_out = {*([] if bench.asks_oracle else ["oracle_pivots"]), *([] if plan.continuations else ["continuations"])}
    for stage in stages_that(lambda stage: stage.sharded):
        if stage == IN_ROUNDS[0]:
            yield from ((one, round_) for round_ in range(rounds) for one in IN_ROUNDS if bench.wants(one))
        elif stage not in (*IN_ROUNDS, *left_out) and bench.wants(stage):
            yield stage, 0


def parents(stage: str, batch: StageRef, chain: Chain) -> list[StageRef | Coming]:
    """List what a stage is made from, in the order of `Stage.parents`.

    In a round, a stage reads what this round made before it, and of what this round has not made yet all that the
    rounds before have: a retry goes by the newest reflection, on the attempt that all stitches so far led to.
    """
    refs: list[StageRef | Coming] = []
    for name in STAGES[stage].parents:
        futures = [batch] if name == "tasks" else chain[name]
        this_round = name in IN_ROUNDS and stage in IN_ROUNDS and IN_ROUNDS.index(name) < IN_ROUNDS.index(stage)
        refs += futures[-1:] if this_round else futures
    return refs


def shard_stages(bench: Workbench, batch: StageRef, shards: Sequence[int]) -> list[StageRef]:
    """Run all stages of these shards until they are committed. Up to `shards_in_flight` shards are worked on at
    once."""
    chains, most = list[Chain](), bench.config.rollout.shards_in_flight
    with ended_together(bench, chains):
        for place, shard in enumerate(shards):
            if place >= most:
                waited_for(in_order(chains[place - most])[-1])
            chains.append({stage: [] for stage in CALLS})
            submit(bench, batch, shard, chains[-1])
        return [waited_for(future).result() for chain in chains for future in in_order(chain)]


@contextmanager
def ended_together(bench: Workbench, chains: Sequence[Chain]) -> Iterator[None]:
    """If one stage fails or the work is ended, end what the others wait for, and wait until they have ended."""
    try:
        yield
    except BaseException as error:
        bench.close(bench.runner.ending(error) or f"another stage failed: {error}")
        bench.runner.settle([future for chain in chains for future in in_order(chain)])
        raise


def waves(bench: Workbench) -> range:
    """Number the waves that may follow the batch. A replay that takes its tasks from the store has those that are
    stored."""
    if bench.takes_from_store("tasks"):
        assert bench.replay is not None
        refs = bench.store.stages(bench.config.run, bench.replay.source_branch, bench.iteration)
        return range(1, 1 + sum(ref.stage == "tasks" and ref.shard is not None for ref in refs))
    return range(1, 1 + (calls.plan_of(bench).resample_rounds if bench.wants("credit") else 0))


def wave_stages(bench: Workbench, refs: list[StageRef], wave: int) -> list[StageRef]:
    """Run the stages of as many new tasks as groups are missing after the waves before; none where none is."""
    credit = [ref for ref in refs if ref.stage == "credit"]
    is_stored = bench.takes_from_store("tasks")
    missing = 0 if is_stored else bench.config.rollout.tasks - calls.count_credit(bench, credit)
    if not is_stored and missing <= 0:
        return []
    batch: StageRef = bench.runner.call(calls.draw_tasks, bench, wave, missing, credit)
    shards = shards_of_batch(bench, batch)
    log().info("wave %d: new tasks in the place of %d groups that do not count", wave, missing)
    bench.progress.add("shards", planned=len(shards))
    return [batch, *shard_stages(bench, batch, shards)]


def shards_of_batch(bench: Workbench, batch: StageRef) -> range:
    """List the shards that the tasks of a wave belong to."""
    slots = [task.task for task in stage_io.tasks(bench.store, batch)]
    size = bench.config.rollout.tasks_per_shard
    return range(min(slots) // size, max(slots) // size + 1) if slots else range(0)
