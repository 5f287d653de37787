"""Waves of new tasks in the place of groups that do not count (DAPO's dynamic sampling), until none is missing."""

from r3l.pipeline.logs import log
from r3l.pipeline.stages import calls, stage_io
from r3l.pipeline.stages.shards import shard_stages
from r3l.pipeline.workbench import Workbench
from r3l.store.layout import StageRef


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
