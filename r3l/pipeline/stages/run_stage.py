"""One stage: found in the store by its fingerprint, or computed and committed."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from r3l.errors import FailedAttempts
from r3l.pipeline.logs import log, log_line
from r3l.pipeline.settings.continuing import change_events
from r3l.pipeline.stages import stage_io
from r3l.pipeline.stages.identity import stage_settings
from r3l.pipeline.workbench import Workbench
from r3l.records import Status
from r3l.stages import STAGES
from r3l.store.layout import StageKey, StageRef
from r3l.store.manifest import Metrics
from r3l.store.stage import fingerprint

Compute = Callable[[], stage_io.Tables]


def run_stage(
    bench: Workbench,
    stage: str,
    shard: int | None,
    parents: Sequence[StageRef],
    compute: Compute,
    intact: Callable[[Workbench, StageRef], bool] = lambda bench, ref: True,
    extra: Mapping[str, Any] | None = None,
) -> StageRef:
    """Find the stored stage if it has the same identity and what it names beyond its tables is `intact`; otherwise
    compute and commit it.

    Args:
        shard: number of the stage's folder; None where it has one for the whole iteration.
        extra: what the stage is made with besides its settings, for its identity.

    Raises:
        Interrupted: the work was ended meanwhile; nothing is committed.
        FailedAttempts: too many attempts ended by errors of the engine or the environment; nothing is committed.
    """
    config = bench.config
    if bench.replay and bench.takes_from_store(stage):
        source = StageKey(config.run, bench.replay.source_branch, bench.iteration, stage, shard)
        return stage_io.reference(bench.store, source)
    key = StageKey(config.run, config.branch, bench.iteration, stage, shard)
    settings = {**(extra or {}), **stage_settings(config, stage)}
    policy, against = policies_of(bench, stage)
    made_from = [ref.fingerprint for ref in parents]
    identity = fingerprint(
        stage, settings, made_from, policy, {"iteration": bench.iteration, "shard": shard, **against}
    )
    ref = bench.store.find(key, identity)
    if ref is not None and intact(bench, ref):
        log().info("%s: found in the store, not computed again", stage)
    else:
        tables, metrics = compute_stage(bench, key, compute)
        ref = bench.store.commit(
            key,
            tables,
            fingerprint=identity,
            parents=list(parents),
            settings=settings,
            policy=policy,
            seed=config.seed,
            metrics=metrics,
        )
        log().info(log_line(stage, tables))
    bench.progress.add(stage, shards=1)
    bench.runner.committed(stage)
    return ref


def compute_stage(bench: Workbench, key: StageKey, compute: Compute) -> tuple[stage_io.Tables, dict[str, float]]:
    """Compute (tables, metrics of the manifest). Raise what `run_stage` says."""
    began = time.monotonic()
    with bench.runner.holding(key.stage, bench.going_on):
        tables = compute()
    bench.going_on()
    if STAGES[key.stage].samples or STAGES[key.stage].plays:
        tables = tables | {"events": [*tables.get("events", ()), *bench.incidents.taken(bench.iteration, key.stage)]}
    # once, where it has shards
    if not key.shard and not STAGES[key.stage].apart and (settings := bench.settings_told):
        events = change_events(bench.store, settings, bench.iteration, key.stage)
        tables = tables | {"events": [*tables.get("events", ()), *events]} if events else tables
    return tables, {"seconds": round(time.monotonic() - began, 3)} | tolerable(bench, key, tables)


def policies_of(bench: Workbench, stage: str) -> tuple[str, dict[str, str]]:
    """Find (digest of the policy that a stage works with, further digests of its identity); an update measures against
    the starting policy."""
    if STAGES[stage].samples:
        teacher = bench.teacher if stage == "reflections" else ""
        return bench.policies.behaviour.digest, {"teacher": teacher} if teacher else {}
    if STAGES[stage].trains:
        of = bench.policies
        return of.learner.digest, {"start": of.start.digest, "optimiser": of.optimiser or ""}
    return "", {}


def tolerable(bench: Workbench, key: StageKey, tables: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Count `attempts` and `failed_attempts` of what a stage made, and the share that was allowed, for its manifest.

    The share is that of the whole stage: a shard counts with those that are committed, and those to come count as being
    of its size.

    Raises:
        FailedAttempts: more than `rollout.max_failed_share` of them failed.
    """
    if not STAGES[key.stage].samples:
        return {}
    attempts = [*tables.get("trajectories", ()), *tables.get("reflections", ())]
    failures = [one for one in attempts if Status(one.status).failed]
    share = bench.config.rollout.max_failed_share
    counts: dict[str, float] = {"attempts": len(attempts), "failed_attempts": len(failures), "max_failed_share": share}
    if not failures:
        return counts
    before, shards = siblings(bench, key)
    attempts_expected = (len(attempts) + sum(one["attempts"] for one in before)) / (len(before) + 1) * shards
    together = len(failures) + sum(one["failed_attempts"] for one in before)
    if together > share * attempts_expected:
        raise FailedAttempts(
            f"{key.stage}: {len(failures)} of {len(attempts)} attempts ended by errors of the engine or the environment"
            f"{f' ({together} of about {attempts_expected:.0f} in the whole stage)' if shards > 1 else ''}, more than "
            f"rollout.max_failed_share={share:g} allows; nothing of it is stored. The first: {failures[0].status}: "
            f"{failures[0].reason}"
        )
    return counts


def siblings(bench: Workbench, key: StageKey) -> tuple[list[Metrics], int]:
    """Read counts of the stage's other shards that are committed, of the same round; and how many shards it has."""
    if key.shard is None or not STAGES[key.stage].sharded:
        return [], 1
    rollout = bench.config.rollout
    shards = -(-rollout.tasks // rollout.tasks_per_shard)
    refs = [
        ref
        for ref in bench.store.stages(key.run, key.branch, key.iteration)
        if ref.stage == key.stage
        and ref.shard != key.shard
        and ref.shard is not None
        and ref.shard // shards == key.shard // shards
    ]
    counts = [bench.store.manifest(ref)["metrics"] for ref in refs]
    return [one for one in counts if "attempts" in one], shards
