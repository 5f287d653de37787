"""The flow `r3l`: one training iteration. It knows stages; what a method wants sampled it reads off the method's plan."""

from __future__ import annotations

from typing import Any

from flows import prefect_settings

prefect_settings.apply()

from prefect import flow  # noqa: E402
from prefect.runtime import flow_run  # noqa: E402

from flows import artifacts, policies, preflight, replay_buffer, tasks, tracking  # noqa: E402
from flows.chain import RUNNER, Chain, submit  # noqa: E402
from flows.elsewhere import check_placement  # noqa: E402
from flows.logs import log  # noqa: E402
from flows.placed_shards import elsewhere, placed  # noqa: E402
from flows.recorded import save_config  # noqa: E402
from flows.update import sweep_staging  # noqa: E402
from flows.workbench import Workbench  # noqa: E402
from r3l.config import Config, compose  # noqa: E402
from r3l.errors import ConfigError, R3LError  # noqa: E402
from r3l.exploration.tally import Tally  # noqa: E402
from r3l.store.layout import StageRef  # noqa: E402
from r3l.store.stage import Store  # noqa: E402

# A display that watches the run from the same process puts its tally here before it calls the flow.
WATCHED: dict[str, Tally] = {}


def _flow_run_name() -> str:
    """E.g. ``demo iteration=7``: a run without an iteration number is named after the one that it takes."""
    config = Config.model_validate(flow_run.parameters["config"])
    try:
        return f"{config.run}{config.branch and '/'}{config.branch} iteration={the_iteration(config, Store.open(config.store.root))}"
    except R3LError:
        return config.run  # what is wrong is said by the preflight, as the run's failure


def the_iteration(config: Config, store: Store) -> int:
    """The iteration asked for, or else the run's next one. Raises `ConfigError` for -1, which only evaluations know."""
    if config.iteration == -1:
        raise ConfigError("iteration=-1 names the starting policy, for evaluations only; leave it empty or give 0 or more")
    return store.next_iteration(config.run, config.branch) if config.iteration is None else config.iteration


@flow(name="r3l", flow_run_name=_flow_run_name, task_runner=RUNNER, validate_parameters=True)
def iterate(config: Config = compose()) -> dict[str, Any]:  # noqa: B008 (frozen; what the form shows)
    """One R3L iteration: sample, reflect, retry from the pivot, stitch, assign credit, update. Every stage is a table.

    Args:
        config: everything that can be set; empty `iteration` means the run's next one.
    """
    store = preflight.check(config)
    check_placement(config.placement)
    iteration = the_iteration(config, store)
    with store.writer_lock(config.run, config.branch, iteration):
        here_alone = config.placement.shards == "here"
        if here_alone:  # else other hosts may be at work on this iteration already: a killed flow's shards go on
            store.sweep(config.run)
        sweep_staging(store.run_folder(config.run, config.branch))
        save_config(store, config, iteration)
        log().info("run %s, iteration %d, store %s", config.run, iteration, store.root)
        found = policies.find(config, store, iteration)
        bench = Workbench(config, store, iteration, found, WATCHED.get(config.run) or Tally())
        try:
            refs = stages(bench)
        finally:
            bench.close()
        if not here_alone:
            store.sweep(config.run)
        summary = artifacts.publish(bench, refs)
    return summary | {"trackers": tracking.feed(config, store)}


def stages(bench: Workbench) -> list[StageRef]:
    """All stages of the iteration. Up to `shards_in_flight` shards run side by side, each as its own chain; only the update
    waits for all."""
    batch: StageRef = tasks.tasks_task(bench)
    shards = range(-(-bench.config.rollout.tasks // bench.config.rollout.tasks_per_shard))
    bench.tally.add("shards", planned=len(shards))
    refs = [batch, *(placed if elsewhere(bench) else here)(bench, batch, shards)]
    if bench.wants("updates"):
        credit, rows = ([ref for ref in refs if ref.stage == stage] for stage in ("credit", "training_rows"))
        replayed = [tasks.replay_task(bench, credit, rows)] if replay_buffer.active(bench) else []
        refs += [*replayed, tasks.update_task(bench, credit, rows, replayed)]
    return refs


def here(bench: Workbench, batch: StageRef, shards: range) -> list[StageRef]:
    """Every shard as a chain of tasks of this flow run."""
    plan, chains = tasks.plan_of(bench), list[Chain]()
    for shard in shards:
        if shard >= bench.config.rollout.shards_in_flight:
            chains[shard - bench.config.rollout.shards_in_flight].all()[-1].wait()
        chains.append(submit(bench, plan, batch, shard))
    return [future.result() for chain in chains for future in chain.all()]
