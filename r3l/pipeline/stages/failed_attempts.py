"""Attempts that an error of the engine or the environment ended: a few are ordinary rows, too many make the stage
fail."""

from collections.abc import Mapping, Sequence
from typing import Any

from r3l.errors import FailedAttempts
from r3l.pipeline.workbench import Workbench
from r3l.records import Status
from r3l.stages import STAGES
from r3l.store.layout import StageKey
from r3l.store.manifest import Metrics


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
