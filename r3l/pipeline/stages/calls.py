"""The stages of an iteration, each as one call. How they follow one another is said in r3l/stages.py (`parents`).

What is stored with the same fingerprint is not computed again; only small `StageRef`s pass between stages.
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps

from r3l.exploration import stages as exploration
from r3l.exploration.episode import action_ids
from r3l.exploration.oracle import oracle_stage
from r3l.methods import counted_groups, credit_stage, method_of, plan, training_rows_stage
from r3l.pipeline.stages import replay_buffer, stage_io
from r3l.pipeline.stages.identity import other_world
from r3l.pipeline.stages.replay_buffer import identity_of_remembered, remembered
from r3l.pipeline.stages.run_stage import run_stage
from r3l.pipeline.stages.task_batch import draw, label, replacements, slots
from r3l.pipeline.stages.updates import policy_is_there, update_tables
from r3l.pipeline.workbench import Workbench
from r3l.records import Credit, Episode, Reflection, SamplingPlan, Task, Trajectory, Turn
from r3l.stages import STAGES
from r3l.store.layout import StageRef


def plan_of(bench: Workbench) -> SamplingPlan:
    """Plan what the method wants sampled."""
    return plan(bench.config.method, bench.config.rollout.group_size)


def draw_tasks(bench: Workbench, wave: int = 0, missing: int = 0, credit: Sequence[StageRef] = ()) -> StageRef:
    """Draw the iteration's batch; in a later wave, tasks in the place of groups that do not count by their `credit`."""

    def compute() -> stage_io.Tables:
        config, iteration = bench.config, bench.iteration
        return {"tasks": replacements(config, iteration, wave, missing) if wave else draw(config, iteration)}

    return run_stage(bench, "tasks", wave or None, credit, compute, extra={"missing": missing} if wave else None)


CALLS: dict[str, Callable[..., StageRef]] = {"tasks": draw_tasks}
Parents = list[StageRef]


def of_a_shard(stage: str) -> Callable[[Callable[..., stage_io.Tables]], Callable[..., StageRef]]:
    """Make the function that computes the tables of a shard a call of `CALLS`, which finds or commits the stage."""

    def call_of(compute: Callable[..., stage_io.Tables]) -> Callable[..., StageRef]:
        @wraps(compute)
        def call(bench: Workbench, batch: StageRef, parents: Parents, shard: int, round_: int = 0) -> StageRef:
            arguments = (bench, batch, parents, shard, *([round_] if STAGES[stage].rounds else []))
            extra = other_world(bench, batch) if STAGES[stage].plays else {}
            return run_stage(
                bench,
                stage,
                label(bench.config.rollout, shard, round_),
                parents,
                lambda: compute(*arguments),
                extra=extra,
            )

        CALLS[stage] = call
        return call

    return call_of


def _shard_tasks(bench: Workbench, batch: StageRef, shard: int) -> list[Task]:
    return stage_io.tasks(bench.store, batch, slots(bench.config.rollout, shard))


def _grown(bench: Workbench, parents: Parents) -> tuple[list[Episode], list[Episode]]:
    """Read (bases, for each the newest attempt grown from it)."""
    bases = stage_io.episodes_of(bench.store, parents, "base")
    return bases, exploration.latest(bases, stage_io.episodes_of(bench.store, parents, "distilled"))


@of_a_shard("base")
def sample_bases(bench: Workbench, batch: StageRef, parents: Parents, shard: int) -> stage_io.Tables:
    """Sample the base trajectories of a shard of tasks."""
    return stage_io.tables(exploration.base_stage(bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench)))


@of_a_shard("oracle_pivots")
def find_oracle_pivots(bench: Workbench, batch: StageRef, parents: Parents, shard: int) -> stage_io.Tables:
    """Ask the environment's oracle where the failed bases of a shard went wrong."""
    tasks, bases = _shard_tasks(bench, batch, shard), stage_io.episodes_of(bench.store, parents, "base")
    pivots, events = oracle_stage(bench.explorer, tasks, bases)
    return {"oracle_pivots": pivots, "events": events}


def reflect(bench: Workbench, batch: StageRef, parents: Parents, shard: int, round_: int = 0) -> StageRef:
    """Reflect on every base of a shard, or from the second round on, on the attempt that grew from it."""
    has_memory = method_of(bench.config.method).guidance_memory(bench.config.method) > 0
    memory = remembered(bench, _shard_tasks(bench, batch, shard)) if has_memory else {}

    def compute() -> stage_io.Tables:
        tasks, bases_and_latest = _shard_tasks(bench, batch, shard), _grown(bench, parents)
        arguments = (bench.explorer, tasks, plan_of(bench), *bases_and_latest, round_)
        return {"reflections": exploration.reflections_stage(*arguments, memory)}

    place, extra = label(bench.config.rollout, shard, round_), identity_of_remembered(memory)
    return run_stage(bench, "reflections", place, parents, compute, extra=extra)


CALLS["reflections"] = reflect


@of_a_shard("retries")
def retry(bench: Workbench, batch: StageRef, parents: Parents, shard: int, round_: int) -> stage_io.Tables:
    """Retry from the pivots that the reflections name."""
    tasks, bases_and_latest = _shard_tasks(bench, batch, shard), _grown(bench, parents)
    reflections = stage_io.records_of(
        bench.store, [ref for ref in parents if ref.stage == "reflections"], "reflections", Reflection
    )
    return stage_io.tables(
        exploration.retries_stage(bench.explorer, tasks, plan_of(bench), *bases_and_latest, reflections)
    )


@of_a_shard("distilled")
def stitch(bench: Workbench, batch: StageRef, parents: Parents, shard: int, round_: int) -> stage_io.Tables:
    """Stitch the corrected suffixes to the prefixes, without the guidance."""
    _, abouts = _grown(bench, parents)
    return stage_io.tables(*exploration.distilled_stage(abouts, stage_io.episodes_of(bench.store, parents, "retries")))


@of_a_shard("continuations")
def continue_bases(bench: Workbench, batch: StageRef, parents: Parents, shard: int) -> stage_io.Tables:
    """Play on from turns of the bases, for methods that ask what these are worth."""
    tasks, bases = _shard_tasks(bench, batch, shard), stage_io.episodes_of(bench.store, parents, "base")
    return stage_io.tables(*exploration.continuations_stage(bench.explorer, tasks, plan_of(bench), bases))


@of_a_shard("credit")
def assign_credit(bench: Workbench, batch: StageRef, parents: Parents, shard: int) -> stage_io.Tables:
    """Compute advantages, amplification and pivot masks of a shard's groups."""
    of_members = [ref for ref in parents if ref.stage != "continuations"]  # extra bases are sampled in place of retries
    turns = (
        stage_io.records_of(bench.store, of_members, "turns", Turn)
        if method_of(bench.config.method).credits_turns
        else []
    )
    trajectories = stage_io.records_of(bench.store, parents, "trajectories", Trajectory)
    credit, events = credit_stage(bench.config.method, trajectories, turns)
    return {"credit": credit, "events": events}


@of_a_shard("training_rows")
def write_training_rows(bench: Workbench, batch: StageRef, parents: Parents, shard: int) -> stage_io.Tables:
    """Make the sequences that the update job reads, each token with its weight."""
    reflections, credit = ([ref for ref in parents if ref.stage == stage] for stage in ("reflections", "credit"))
    method, engine = bench.config.method, bench.config.engine
    if method.sampler_ratio == "auto":
        rule = "truncate" if bench.config.training.overlap else engine.SAMPLER_RATIO
        method = method.model_copy(update={"sampler_ratio": rule})
    rows, events = training_rows_stage(
        method,
        stage_io.episodes_of(bench.store, parents, "base", "retries", "distilled"),
        stage_io.records_of(bench.store, reflections, "reflections", Reflection),
        stage_io.records_of(bench.store, credit, "credit", Credit),
        partial(action_ids, bench.world, bench.chat) if method_of(method).weighs_actions(method) else None,
    )
    return {"training_rows": rows, "events": events}


def replay_groups(bench: Workbench, credit: list[StageRef], rows: list[StageRef]) -> StageRef:
    """Draw what is learned from again: groups of earlier iterations, and corrections."""
    parents = [*credit, *rows, *replay_buffer.history(bench)]
    draw_again = replay_buffer.replay_tables
    return run_stage(bench, "replay", None, parents, lambda: draw_again(bench, count_credit(bench, credit), rows))


def count_credit(bench: Workbench, credit: list[StageRef]) -> int:
    return counted_groups(stage_io.records_of(bench.store, credit, "credit", Credit))


def update(
    bench: Workbench, bases: list[StageRef], credit: list[StageRef], rows: list[StageRef], replay: list[StageRef]
) -> StageRef:
    """Have the update job take its optimiser steps over the batch and, where there are any, replayed groups."""

    def compute() -> stage_io.Tables:
        groups = count_credit(bench, credit) + sum(
            bench.store.read(ref, "replay", ["group_id"]).num_rows for ref in replay
        )
        older = {digest: path for ref in replay for digest, path in replay_buffer.behaviours(bench, ref).items()}
        return update_tables(bench, [*rows, *replay], bases, groups, older)

    return run_stage(bench, "updates", None, [*rows, *replay], compute, policy_is_there)


CALLS |= {"replay": replay_groups, "updates": update}
