"""Shards on other hosts: workers of a Prefect pool, or hosts of a Ray cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.placement import remote_update
from flows.placement.policies import share_policies
from flows.tasks import is_task
from r3l.config import Config
from r3l.errors import ConfigError
from r3l.exploration.progress import Progress
from r3l.pipeline.runner import Runner, waited_for
from r3l.pipeline.workbench import Workbench
from r3l.store.layout import StageRef
from r3l.store.stage import Store
from r3l.system.packages import import_package
from r3l.training.job import JobSpec, UpdateResult


class PrefectPlacement:
    """The settings of `placement` decide, for each piece of work, whether it goes to another host."""

    def shards(self, bench: Workbench, batch: StageRef, shards: range) -> list[StageRef] | None:
        """Keep a replay here: it is small, and takes from the store what it does not compute."""
        return None if bench.config.placement.shards == "here" else play_elsewhere(bench, batch, shards)

    def update(self, bench: Workbench, job: JobSpec, rows: list[str]) -> UpdateResult | None:
        """Send the update to the deployment that is set; None where none is."""
        return remote_update.ask(bench, job, rows) if bench.config.placement.update_deployment else None


def play_elsewhere(bench: Workbench, batch: StageRef, shards: range) -> list[StageRef]:
    """Have every shard played on another host, and gather its stages, which are in the store."""
    with _submitting(bench, batch) as submit:
        futures: list[Any] = []
        try:
            for shard in shards:
                # A window, not a pool: no more shards are out than hosts may play, and the oldest is waited for first.
                if shard >= bench.config.rollout.shards_in_flight:
                    waited_for(futures[shard - bench.config.rollout.shards_in_flight])
                futures.append(submit(shard))
            return [ref for future in futures for ref in waited_for(future).result()]
        except BaseException:
            bench.close("another shard failed")
            bench.runner.settle(futures)
            raise


@contextmanager
def _submitting(bench: Workbench, batch: StageRef) -> Iterator[Callable[[int], Any]]:
    shared_policies = share_policies(bench.config, bench.store, bench.policies)
    if bench.config.placement.shards == "workers":
        yield lambda shard: bench.runner.submit(wait_for_shard, bench, batch, shard, shared_policies)
        return
    config = bench.config.kept_at(bench.store.root)
    bench.equip()
    config_json, slots = config.model_dump(mode="json"), config.environment.workers
    with _ray(config) as (runner, options):
        with options(num_cpus=slots):
            yield lambda shard: runner.submit(
                ray_shard_task,
                {"config": config_json, "iteration": bench.iteration, "shard": shard, "policies": shared_policies},
            )


def wait_for_shard(bench: Workbench, batch: StageRef, shard: int, policies: dict[str, Any]) -> list[StageRef]:
    """Wait for a shard that another host plays."""
    # late, here and below: the form of its flow takes Prefect a third of a second, for shards that are played elsewhere
    from flows.placement import remote_shard

    return remote_shard.ask(bench, batch, shard, policies)


is_task(wait_for_shard, "shard", "shard={shard}")


@contextmanager
def _ray(config: Config) -> Iterator[Any]:
    """Prefect's runner on a Ray cluster, and how a task's share of a host is said. Ray itself runs a lost host's task
    elsewhere."""
    ray = import_package("prefect_ray", "ray", ConfigError)
    address = config.placement.ray_address or None
    with ray.RayTaskRunner(address, {"ignore_reinit_error": True}) as runner:
        yield runner, import_package("prefect_ray.context", "ray", ConfigError).remote_options


@task(name="shard", task_run_name="shard={shard}", cache_policy=NO_CACHE)
def ray_shard_task(config: dict[str, Any], iteration: int, shard: int, policies: dict[str, Any]) -> list[StageRef]:
    """Play a shard in a process of a Ray host; its stages are plain calls there, not tasks of the server."""
    from flows.placement import remote_shard

    settings = Config.model_validate(config)
    return remote_shard.play(
        settings, Store.open(settings.store.root), iteration, shard, policies, Progress(), Runner()
    )
