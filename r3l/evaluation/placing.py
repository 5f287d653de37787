"""Where an evaluation stands in the store: beside all others of its iteration, never in the place of one."""

from collections.abc import Mapping
from typing import Any

from r3l.config import Config
from r3l.evaluation.benchmarks import Posed
from r3l.store.digests import canonical, fingerprint_of
from r3l.store.layout import StageKey
from r3l.store.stage import Store


def place(store: Store, config: Config, iteration: int, settings: Mapping[str, Any], policy: str) -> StageKey:
    """Find the shard of an evaluation: its own where it was played with the same settings and policy, else the next one
    of the iteration."""
    refs = [ref for ref in store.stages(config.run, config.branch, iteration) if ref.stage == "evaluations"]
    manifests = {ref.shard or 0: store.manifest(ref) for ref in refs}
    identity = canonical(settings)
    mine = [
        shard for shard, one in manifests.items() if one["policy"] == policy and canonical(one["settings"]) == identity
    ]
    return StageKey(
        config.run, config.branch, iteration, "evaluations", mine[0] if mine else max(manifests, default=-1) + 1
    )


def about(test: Posed, settings: Mapping[str, Any], tasks: int, of_tasks: int) -> dict[str, Any]:
    """Make the columns that say of which evaluation a row is. `settings`: all that it is made with but for the policy,
    so that evaluations of several policies have the same digest."""
    evaluation = test.config.evaluation
    return {
        "benchmark": test.benchmark,
        "format": test.format,
        "protocol": test.protocol,
        "evaluation": fingerprint_of(settings)[:12],
        "data": settings["data"],
        "split": evaluation.split,
        "tasks": tasks,
        "of_tasks": of_tasks,
        "repeats": evaluation.repeats,
        "seed": test.config.seed,
        "temperature": evaluation.temperature,
    }
