"""A thin Prefect task for each stage. What is stored with the same fingerprint is not computed again; only small
`StageRef`s pass between tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from prefect.cache_policies import NO_CACHE

from flows import replay_buffer, server, stored
from flows.identity import stage_settings
from flows.logs import log, told
from flows.stage_task import stage_task
from flows.task_batch import draw
from flows.update import policy_is_there, update_tables
from flows.workbench import Workbench
from r3l.exploration import stages
from r3l.exploration.judge import oracle_stage
from r3l.methods import counted_groups, credit_stage, plan, training_rows_stage
from r3l.records import Credit, Episode, Kind, Plan, Reflection, Task, Trajectory
from r3l.store.layout import StageKey, StageRef
from r3l.store.stage import fingerprint

Compute = Callable[[], stored.Tables]


def run_stage(bench: Workbench, stage: str, shard: int | None, parents: Sequence[StageRef], compute: Compute,
              intact: Callable[[Workbench, StageRef], bool] = lambda bench, ref: True) -> StageRef:
    """The stored stage where it is what it would become, and what it names beyond its tables is `intact`; else compute and commit it."""
    if bench.replay and bench.takes_stored(stage):
        return stored.reference(bench.store, StageKey(bench.config.run, bench.replay.source_branch, bench.iteration, stage, shard))
    config = bench.config
    settings = stage_settings(config, stage)
    samples = stage in {"base", "reflections", "retries"}
    policy = bench.policies.behaviour.digest if samples else bench.policies.learner.digest if stage == "updates" else ""
    identity = fingerprint(stage, settings, [ref.fingerprint for ref in parents], policy, config.seed,
                           {"iteration": bench.iteration, "shard": shard})
    key = StageKey(config.run, config.branch, bench.iteration, stage, shard)
    found = bench.store.find(key, identity)
    if found is None or not intact(bench, found):
        began = time.monotonic()
        with server.holding(stage):
            tables = compute()
        found = bench.store.commit(key, tables, fingerprint=identity, parents=list(parents), settings=settings,
                                   policy=policy, seed=config.seed, metrics={"seconds": round(time.monotonic() - began, 3)})
        log().info(told(stage, tables))
        server.progressed(stage)
    else:
        log().info("%s: found in the store, not computed again", stage)
    bench.tally.add(stage, shards=1)
    return found


def plan_of(bench: Workbench) -> Plan:
    """What the method wants sampled."""
    return plan(bench.config.method, bench.config.rollout.group_size)


def slots(bench: Workbench, shard: int) -> range:
    """The batch's slots that belong to a shard."""
    size = bench.config.rollout.tasks_per_shard
    return range(shard * size, min((shard + 1) * size, bench.config.rollout.tasks))


@stage_task(name="tasks", task_run_name="tasks", cache_policy=NO_CACHE)
def tasks_task(bench: Workbench) -> StageRef:
    """Draw the iteration's batch."""
    return run_stage(bench, "tasks", None, [], lambda: {"tasks": draw(bench.config, bench.iteration)})


@stage_task(name="base", task_run_name="base shard={shard}", cache_policy=NO_CACHE)
def base_task(bench: Workbench, batch: StageRef, shard: int) -> StageRef:
    """Sample the base trajectories of a shard of tasks."""
    return run_stage(bench, "base", shard, [batch], lambda: stored.tables(stages.base_stage(
        bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench))))


def _shard_tasks(bench: Workbench, batch: StageRef, shard: int) -> list[Task]:
    return stored.tasks(bench.store, batch, slots(bench, shard))


def _grown(bench: Workbench, base: StageRef, distilled: Sequence[StageRef]) -> tuple[list[Episode], list[Episode]]:
    """(bases, for each the newest attempt grown from it)."""
    bases = stored.episodes(bench.store, [base])
    return bases, stages.latest(bases, stored.episodes(bench.store, distilled))


@stage_task(name="oracle_pivots", task_run_name="oracle_pivots shard={shard}", cache_policy=NO_CACHE)
def oracle_pivots_task(bench: Workbench, batch: StageRef, base: StageRef, shard: int) -> StageRef:
    """Where the environment's oracle says that the failed bases of a shard went wrong."""

    def compute() -> stored.Tables:
        pivots, events = oracle_stage(bench.explorer, _shard_tasks(bench, batch, shard), stored.episodes(bench.store, [base]))
        return {"oracle_pivots": pivots, "events": events}

    return run_stage(bench, "oracle_pivots", shard, [batch, base], compute)


@stage_task(name="reflections", task_run_name="reflections shard={shard} round={round_}", cache_policy=NO_CACHE)
def reflections_task(bench: Workbench, batch: StageRef, base: StageRef, distilled: list[StageRef], shard: int, round_: int) -> StageRef:
    """Reflect on every base of a shard, or from the second round on, on the attempt that grew from it."""

    def compute() -> stored.Tables:
        bases, abouts = _grown(bench, base, distilled)
        return {"reflections": stages.reflections_stage(
            bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench), bases, abouts, round_)}

    return run_stage(bench, "reflections", label(bench, shard, round_), [base, *distilled], compute)


@stage_task(name="retries", task_run_name="retries shard={shard} round={round_}", cache_policy=NO_CACHE)
def retries_task(bench: Workbench, batch: StageRef, base: StageRef, distilled: list[StageRef], reflections: StageRef,
                 shard: int, round_: int) -> StageRef:
    """Retry from the pivots that the reflections name."""

    def compute() -> stored.Tables:
        bases, abouts = _grown(bench, base, distilled)
        found = stored.records(bench.store, reflections, "reflections", Reflection)
        return stored.tables(stages.retries_stage(
            bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench), bases, abouts, found))

    return run_stage(bench, "retries", label(bench, shard, round_), [base, *distilled, reflections], compute)


@stage_task(name="distilled", task_run_name="distilled shard={shard} round={round_}", cache_policy=NO_CACHE)
def distilled_task(bench: Workbench, base: StageRef, distilled: list[StageRef], retries: StageRef, shard: int, round_: int) -> StageRef:
    """Stitch the corrected suffixes to the prefixes, without the guidance."""

    def compute() -> stored.Tables:
        _, abouts = _grown(bench, base, distilled)
        return stored.tables(*stages.distilled_stage(abouts, stored.episodes(bench.store, [retries])))

    return run_stage(bench, "distilled", label(bench, shard, round_), [base, *distilled, retries], compute)


def label(bench: Workbench, shard: int, round_: int) -> int:
    """The folder number of a shard's later rounds: after all shards of the rounds before."""
    config = bench.config.rollout
    return round_ * -(-config.tasks // config.tasks_per_shard) + shard


@stage_task(name="credit", task_run_name="credit shard={shard}", cache_policy=NO_CACHE)
def credit_task(bench: Workbench, base: StageRef, retries: list[StageRef], distilled: list[StageRef], shard: int) -> StageRef:
    """Advantages, amplification and pivot masks of a shard's groups."""

    def compute() -> stored.Tables:
        members = _members(bench, base, retries, distilled)
        credit, events = credit_stage(bench.config.method, members)
        return {"credit": credit, "events": events}

    return run_stage(bench, "credit", shard, [base, *retries, *distilled], compute)


def _members(bench: Workbench, base: StageRef, retries: Sequence[StageRef], distilled: Sequence[StageRef]) -> list[Trajectory]:
    """Base (extra ones too) and distilled trajectories."""
    found = [one for ref in (base, *retries, *distilled) for one in stored.records(bench.store, ref, "trajectories", Trajectory)]
    return [one for one in found if one.kind in {Kind.BASE, Kind.DISTILLED}]


@stage_task(name="training_rows", task_run_name="training_rows shard={shard}", cache_policy=NO_CACHE)
def training_rows_task(bench: Workbench, base: StageRef, reflections: list[StageRef], retries: list[StageRef],
                       distilled: list[StageRef], credit: StageRef, shard: int) -> StageRef:
    """The sequences that the update job reads, each token with its weight."""
    parents = [base, *reflections, *retries, *distilled, credit]

    def compute() -> stored.Tables:
        episodes = stored.episodes(bench.store, [base, *retries, *distilled])
        rows, events = training_rows_stage(
            bench.config.method, episodes,
            [one for ref in reflections for one in stored.records(bench.store, ref, "reflections", Reflection)],
            stored.records(bench.store, credit, "credit", Credit))
        return {"training_rows": rows, "events": events}

    return run_stage(bench, "training_rows", shard, parents, compute)


@stage_task(name="replay", task_run_name="replay", cache_policy=NO_CACHE)
def replay_task(bench: Workbench, credit: list[StageRef], rows: list[StageRef]) -> StageRef:
    """Draw groups of earlier iterations to learn from again."""
    parents = [*credit, *rows, *replay_buffer.history(bench)]
    return run_stage(bench, "replay", None, parents, lambda: replay_buffer.replay_tables(bench, _counted(bench, credit)))


def _counted(bench: Workbench, credit: list[StageRef]) -> int:
    return counted_groups(one for ref in credit for one in stored.records(bench.store, ref, "credit", Credit))


@stage_task(name="updates", task_run_name="updates", cache_policy=NO_CACHE)
def update_task(bench: Workbench, credit: list[StageRef], rows: list[StageRef], replay: list[StageRef]) -> StageRef:
    """One optimiser step over the batch and, where there are any, replayed groups, by the update job."""

    def compute() -> stored.Tables:
        groups = _counted(bench, credit) + sum(bench.store.read(ref, "replay", ["group_id"]).num_rows for ref in replay)
        older = {digest: path for ref in replay for digest, path in replay_buffer.behaviours(bench, ref).items()}
        return update_tables(bench, [*rows, *replay], groups, older)

    return run_stage(bench, "updates", None, [*rows, *replay], compute, policy_is_there)
