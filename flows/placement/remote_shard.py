"""Shards on other hosts: the flow `r3l-shard` plays one from its base trajectories to its training rows, and commits
every stage.

The shard is the unit: a lost host's shard is played elsewhere, from the last stage that was committed.
"""

import json
from typing import Any

from prefect import flow

from flows.placement.heartbeat import beating, counts_of
from flows.placement.policies import fetch_policies, with_adopted_servers
from flows.placement.remote_jobs import Errand, run_remote
from flows.tasks import RUNNER, runner
from r3l.config import Config
from r3l.exploration.progress import Progress
from r3l.pipeline.iteration import working
from r3l.pipeline.runner import Runner
from r3l.pipeline.stages import stage_io
from r3l.pipeline.stages.identity import work_identity
from r3l.pipeline.stages.shards import shard_stages
from r3l.pipeline.workbench import Workbench
from r3l.store.digests import fingerprint_of
from r3l.store.layout import StageKey, StageRef, iteration_folder
from r3l.store.stage import Store


def ask(bench: Workbench, batch: StageRef, shard: int, policies: dict[str, Any]) -> list[StageRef]:
    """Have the shard played by the deployment that is set, and give back its committed stages."""
    config, store = bench.config, bench.store
    config_json = config.kept_at(store.root).model_dump(mode="json")
    key = fingerprint_of(
        [
            config.run,
            config.branch,
            work_identity(config),
            bench.iteration,
            shard,
            batch.fingerprint,
            bench.policies.behaviour.digest,
        ]
    )
    place = result_place(config, bench.iteration, shard)

    def finished() -> list[StageRef] | None:
        left = json.loads(store.files.read(place) or b"{}")
        refs = [StageRef.model_validate(ref) for ref in left["refs"]] if left.get("key") == key else []
        return refs if refs and all(store.intact(ref) for ref in refs) else None

    if finished() is None:
        bench.equip()
    parameters = {"config": config_json, "iteration": bench.iteration, "shard": shard, "key": key, "policies": policies}
    errand = Errand(
        config.placement.shard_deployment, f"r3l-shard-{key}", parameters, beat_place(config, bench.iteration, shard)
    )
    refs = run_remote(errand, store.files, config.placement, finished, bench.stopped, bench.count)
    bench.progress.add("shards", done=1)
    return refs


@flow(name="r3l-shard", flow_run_name="{config.run} iteration={iteration} shard={shard}", task_runner=RUNNER)
def shard(config: Config, iteration: int, shard: int, key: str, policies: dict[str, Any], attempt: int = 0) -> int:
    """Play one shard on this host, for a flow `r3l` that waits for it. The result is the number of its stages.

    Args:
        config: as for the iteration; the store must be one that all hosts see.
        iteration: which iteration.
        shard: number of the shard, 0-based.
        key: names this work: the result is marked with it.
        policies: digests of the policies, and their places in the store.
        attempt: which try of the shard this is, 0-based.
    """
    store = Store.open(config.store.root)
    progress = Progress()
    with beating(
        store.files, beat_place(config, iteration, shard), attempt, config.placement.heartbeat_s, counts_of(progress)
    ) as beat:
        refs = play(config, store, iteration, shard, policies, progress, runner())
        beat.check()
        left = {"key": key, "refs": [ref.model_dump() for ref in refs]}
        store.files.put(result_place(config, iteration, shard), json.dumps(left).encode())
    return len(refs)


def play(
    config: Config,
    store: Store,
    iteration: int,
    shard: int,
    policies: dict[str, Any],
    progress: Progress,
    runner: Runner,
) -> list[StageRef]:
    """Compute the shard's stages, each found in the store or made here."""
    batch = stage_io.reference(store, StageKey(config.run, config.branch, iteration, "tasks"))
    bench = Workbench(
        with_adopted_servers(config), store, iteration, fetch_policies(config, store, policies), progress, runner=runner
    )
    with working(bench):
        return shard_stages(bench, batch, [shard])


def result_place(config: Config, iteration: int, shard: int) -> str:
    return f"{iteration_folder(config.run, config.branch, iteration)}/elsewhere/shard={shard:05d}.json"


def beat_place(config: Config, iteration: int, shard: int) -> str:
    return f"{iteration_folder(config.run, config.branch, iteration)}/elsewhere/shard={shard:05d}-beat.json"
