"""The stages of an iteration, each as one call, and how they follow one another.

What is stored with the same fingerprint is not computed again; only small `StageRef`s pass between stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from r3l.exploration import stages as exploration
from r3l.exploration.oracle import oracle_stage
from r3l.methods import counted_groups, credit_stage, credits_turns, plan, training_rows_stage
from r3l.pipeline.runner import Coming
from r3l.pipeline.stages import replay_buffer, stage_io
from r3l.pipeline.stages.identity import world_of
from r3l.pipeline.stages.run_stage import run_stage
from r3l.pipeline.stages.task_batch import draw, replacements
from r3l.pipeline.stages.updates import policy_is_there, update_tables
from r3l.pipeline.workbench import Workbench
from r3l.records import Credit, Episode, Reflection, SamplingPlan, Task, Trajectory, Turn
from r3l.store.layout import StageRef


def plan_of(bench: Workbench) -> SamplingPlan:
    """Return what the method wants sampled."""
    return plan(bench.config.method, bench.config.rollout.group_size)


def slots(bench: Workbench, shard: int) -> range:
    """Return the slots that belong to a shard; the last ones of a batch may be none of its tasks."""
    size = bench.config.rollout.tasks_per_shard
    return range(shard * size, (shard + 1) * size)


def draw_tasks(bench: Workbench, wave: int = 0, missing: int = 0, credit: Sequence[StageRef] = ()) -> StageRef:
    """Draw the iteration's batch; in a later wave, tasks in the place of groups that do not count by their `credit`."""

    def compute() -> stage_io.Tables:
        config, iteration = bench.config, bench.iteration
        return {"tasks": replacements(config, iteration, wave, missing) if wave else draw(config, iteration)}

    return run_stage(bench, "tasks", wave or None, credit, compute, extra={"missing": missing} if wave else None)


def sample_bases(bench: Workbench, batch: StageRef, shard: int) -> StageRef:
    """Sample the base trajectories of a shard of tasks."""
    return run_stage(
        bench,
        "base",
        shard,
        [batch],
        lambda: stage_io.tables(
            exploration.base_stage(bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench))
        ),
        extra=other_world(bench, batch),
    )


def other_world(bench: Workbench, batch: StageRef) -> dict[str, Any]:
    """Return data and version of the world, if a replay plays tasks that were drawn under others: no setting and no
    parent of its stages tells of them."""
    if bench.replay is None:
        return {}
    now, drawn = world_of(bench.config, bench.config.environment.split), bench.store.manifest(batch)["settings"]
    return {} if all(drawn[name] == value for name, value in now.items()) else now


def _shard_tasks(bench: Workbench, batch: StageRef, shard: int) -> list[Task]:
    return stage_io.tasks(bench.store, batch, slots(bench, shard))


def _grown(bench: Workbench, base: StageRef, distilled: Sequence[StageRef]) -> tuple[list[Episode], list[Episode]]:
    """Return (bases, for each the newest attempt grown from it)."""
    bases = stage_io.episodes(bench.store, [base])
    return bases, exploration.latest(bases, stage_io.episodes(bench.store, distilled))


def find_oracle_pivots(bench: Workbench, batch: StageRef, base: StageRef, shard: int) -> StageRef:
    """Return where the environment's oracle says that the failed bases of a shard went wrong."""

    def compute() -> stage_io.Tables:
        pivots, events = oracle_stage(
            bench.explorer, _shard_tasks(bench, batch, shard), stage_io.episodes(bench.store, [base])
        )
        return {"oracle_pivots": pivots, "events": events}

    return run_stage(bench, "oracle_pivots", shard, [batch, base], compute, extra=other_world(bench, batch))


def reflect(
    bench: Workbench, batch: StageRef, base: StageRef, distilled: list[StageRef], shard: int, round_: int
) -> StageRef:
    """Reflect on every base of a shard, or from the second round on, on the attempt that grew from it."""

    def compute() -> stage_io.Tables:
        bases, abouts = _grown(bench, base, distilled)
        return {
            "reflections": exploration.reflections_stage(
                bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench), bases, abouts, round_
            )
        }

    return run_stage(bench, "reflections", label(bench, shard, round_), [base, *distilled], compute)


def retry(
    bench: Workbench,
    batch: StageRef,
    base: StageRef,
    distilled: list[StageRef],
    reflections: StageRef,
    shard: int,
    round_: int,
) -> StageRef:
    """Retry from the pivots that the reflections name."""

    def compute() -> stage_io.Tables:
        bases, abouts = _grown(bench, base, distilled)
        records = stage_io.records(bench.store, reflections, "reflections", Reflection)
        return stage_io.tables(
            exploration.retries_stage(
                bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench), bases, abouts, records
            )
        )

    parents = [base, *distilled, reflections]
    return run_stage(bench, "retries", label(bench, shard, round_), parents, compute, extra=other_world(bench, batch))


def stitch(
    bench: Workbench, base: StageRef, distilled: list[StageRef], retries: StageRef, shard: int, round_: int
) -> StageRef:
    """Stitch the corrected suffixes to the prefixes, without the guidance."""

    def compute() -> stage_io.Tables:
        _, abouts = _grown(bench, base, distilled)
        return stage_io.tables(*exploration.distilled_stage(abouts, stage_io.episodes(bench.store, [retries])))

    return run_stage(bench, "distilled", label(bench, shard, round_), [base, *distilled, retries], compute)


def continue_bases(bench: Workbench, batch: StageRef, base: StageRef, shard: int) -> StageRef:
    """Play on from turns of the bases, for methods that ask what these are worth."""

    def compute() -> stage_io.Tables:
        bases, plan = stage_io.episodes(bench.store, [base]), plan_of(bench)
        return stage_io.tables(
            *exploration.continuations_stage(bench.explorer, _shard_tasks(bench, batch, shard), plan, bases)
        )

    return run_stage(bench, "continuations", shard, [base], compute, extra=other_world(bench, batch))


def label(bench: Workbench, shard: int, round_: int) -> int:
    """Return the folder number of a shard's later rounds: after all shards of the rounds before."""
    config = bench.config.rollout
    return round_ * -(-config.tasks // config.tasks_per_shard) + shard


def assign_credit(
    bench: Workbench,
    base: StageRef,
    retries: list[StageRef],
    distilled: list[StageRef],
    continuations: list[StageRef],
    shard: int,
) -> StageRef:
    """Compute advantages, amplification and pivot masks of a shard's groups."""

    def compute() -> stage_io.Tables:
        of_members = [base, *retries, *distilled]  # extra bases are sampled in place of retries
        turns = _rows(bench, of_members, "turns", Turn) if credits_turns(bench.config.method) else []
        played = _rows(bench, [*of_members, *continuations], "trajectories", Trajectory)
        credit, events = credit_stage(bench.config.method, played, turns)
        return {"credit": credit, "events": events}

    return run_stage(bench, "credit", shard, [base, *retries, *distilled, *continuations], compute)


def _rows(bench: Workbench, refs: Sequence[StageRef], table: str, kind: type[stage_io.Record]) -> list[stage_io.Record]:
    return [one for ref in refs for one in stage_io.records(bench.store, ref, table, kind)]


def write_training_rows(
    bench: Workbench,
    base: StageRef,
    reflections: list[StageRef],
    retries: list[StageRef],
    distilled: list[StageRef],
    credit: StageRef,
    shard: int,
) -> StageRef:
    """Return the sequences that the update job reads, each token with its weight."""
    parents = [base, *reflections, *retries, *distilled, credit]

    def compute() -> stage_io.Tables:
        episodes = stage_io.episodes(bench.store, [base, *retries, *distilled])
        rows, events = training_rows_stage(
            bench.config.method,
            episodes,
            _rows(bench, reflections, "reflections", Reflection),
            stage_io.records(bench.store, credit, "credit", Credit),
        )
        return {"training_rows": rows, "events": events}

    return run_stage(bench, "training_rows", shard, parents, compute)


def replay_groups(bench: Workbench, credit: list[StageRef], rows: list[StageRef]) -> StageRef:
    """Draw groups of earlier iterations to learn from again."""
    parents = [*credit, *rows, *replay_buffer.history(bench)]
    return run_stage(bench, "replay", None, parents, lambda: replay_buffer.replay_tables(bench, counted(bench, credit)))


def counted(bench: Workbench, credit: list[StageRef]) -> int:
    return counted_groups(_rows(bench, credit, "credit", Credit))


def update(
    bench: Workbench, bases: list[StageRef], credit: list[StageRef], rows: list[StageRef], replay: list[StageRef]
) -> StageRef:
    """Have the update job take its optimiser steps over the batch and, where there are any, replayed groups."""

    def compute() -> stage_io.Tables:
        groups = counted(bench, credit) + sum(bench.store.read(ref, "replay", ["group_id"]).num_rows for ref in replay)
        older = {digest: path for ref in replay for digest, path in replay_buffer.behaviours(bench, ref).items()}
        return update_tables(bench, [*rows, *replay], bases, groups, older)

    return run_stage(bench, "updates", None, [*rows, *replay], compute, policy_is_there)


CALLS: dict[str, Callable[..., StageRef]] = {
    "tasks": draw_tasks,
    "base": sample_bases,
    "oracle_pivots": find_oracle_pivots,
    "reflections": reflect,
    "retries": retry,
    "distilled": stitch,
    "continuations": continue_bases,
    "credit": assign_credit,
    "training_rows": write_training_rows,
    "replay": replay_groups,
    "updates": update,
}
Chain = dict[str, list[Coming]]  # of one shard: stage -> its futures, one per round


def submit(bench: Workbench, batch: StageRef, shard: int, chain: Chain) -> None:
    """Submit a shard's stages into `chain`. Each waits for its own predecessors only, so that shards are in flight side
    by side."""
    begin, plan = bench.runner.submit, plan_of(bench)
    if bench.wants("base"):
        chain["base"].append(begin(sample_bases, bench, batch, shard))
    if bench.asks_oracle:
        chain["oracle_pivots"].append(begin(find_oracle_pivots, bench, batch, chain["base"][0], shard))
    for round_ in range(plan.retries_per_base if plan.reflection != "none" else 0):
        submit_round(bench, batch, shard, chain, round_)
    if plan.continuations and bench.wants("continuations"):
        chain["continuations"].append(begin(continue_bases, bench, batch, chain["base"][0], shard))
    if bench.wants("credit"):
        parents = (chain["base"][0], chain["retries"], chain["distilled"], chain["continuations"])
        chain["credit"].append(begin(assign_credit, bench, *parents, shard))
    if bench.wants("training_rows"):
        of_all = (chain["base"][0], chain["reflections"], chain["retries"], chain["distilled"], chain["credit"][0])
        chain["training_rows"].append(begin(write_training_rows, bench, *of_all, shard))


def submit_round(bench: Workbench, batch: StageRef, shard: int, chain: Chain, round_: int) -> None:
    """Reflect on the newest attempts, retry from the pivots, stitch."""
    begin, before = bench.runner.submit, list(chain["distilled"])
    if bench.wants("reflections"):
        chain["reflections"].append(begin(reflect, bench, batch, chain["base"][0], before, shard, round_))
    if bench.wants("retries"):
        guided = (chain["base"][0], before, chain["reflections"][-1])
        chain["retries"].append(begin(retry, bench, batch, *guided, shard, round_))
    if bench.wants("distilled"):
        chain["distilled"].append(begin(stitch, bench, chain["base"][0], before, chain["retries"][-1], shard, round_))
