"""One training iteration: opened in one way by whoever runs it, and its stages from the tasks to the update."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from r3l.config import Config
from r3l.errors import ConfigError, Interrupted
from r3l.exploration.progress import Progress
from r3l.pipeline import policies
from r3l.pipeline.logs import log
from r3l.pipeline.runner import Runner, Threads, waited_for
from r3l.pipeline.settings.continuing import Change, keep_settings, stages_of_setting
from r3l.pipeline.stages import calls, replay_buffer
from r3l.pipeline.stages.shards import shard_stages, wave_stages, waves
from r3l.pipeline.stages.task_batch import shards_of
from r3l.pipeline.stages.updates import sweep_staging
from r3l.pipeline.summary import Summary, summarise
from r3l.pipeline.tools import Tools
from r3l.pipeline.tracking.feed import feed
from r3l.pipeline.workbench import Placement, Replay, Workbench
from r3l.stages import STAGES
from r3l.store.layout import StageRef
from r3l.store.stage import Store
from r3l.store.sweep import withdraw
from r3l.system import memory


def the_iteration(config: Config, store: Store) -> int:
    """Choose the iteration asked for, or else the run's next one. Raise `ConfigError` for one that the run has not come
    to, and for -1, which only evaluations know."""
    number, run = config.iteration, config.run
    if number == -1:
        raise ConfigError(
            "iteration=-1 names the starting policy, for evaluations only; leave it empty or give 0 or more"
        )
    is_fork = config.branch and config.branch not in store.branches(run)  # a branch may begin anywhere on the run
    upcoming = store.next_iteration(run, "" if is_fork else config.branch)
    if number is None:
        return 0 if is_fork else upcoming
    if number > upcoming:
        raise ConfigError(
            f"iteration={number}: run {run} has come to iteration {upcoming}, which is the next; leave it empty or "
            f"give 0 to {upcoming}"
        )
    return number


@contextmanager
def open_iteration(
    config: Config,
    store: Store,
    iteration: int,
    *,
    progress: Progress | None = None,
    runner: Runner | None = None,
    placement: Placement | None = None,
    tools: Tools | None = None,
    replay: Replay | None = None,
) -> Iterator[Workbench]:
    """Hold an iteration as its only writer: sweep what dead writers left, save its settings, find its policies.

    Args:
        progress: counts what is done; a display may draw it.
        runner: how stages are run; by default one after another in this thread.
        placement: takes shards and the update to other hosts; by default all is done here.
        tools: an engine and environment workers that outlast the iteration; by default it has its own.
        replay: which stages are taken from another branch instead.

    Raises:
        StoreError: another writer holds the iteration, or its settings would rewrite a finished one.
        ConfigError: the starting policy is missing, or the settings would make it another run.
        Interrupted: the work was ended from outside.
    """
    alone = config.placement.shards == "here"  # else a killed run's shards may still be played on other hosts
    with store.writer_lock(config.run, config.branch, iteration):
        if replay is None:
            if alone:
                store.sweep(config.run)
            sweep_staging(store.run_folder(config.run, config.branch), iteration)
        withdraw_following(store, config, iteration, keep_settings(store, config, iteration, replay is not None))
        log().info("run %s, iteration %d, store %s", config.run, iteration, store.root)
        of = config if replay is None else config.model_copy(update={"branch": replay.source_branch})
        snapshots = policies.find(of, store, iteration)
        bench = Workbench(
            config,
            store,
            iteration,
            snapshots,
            progress or Progress(),
            runner=runner,
            placement=placement,
            tools=tools,
            replay=replay,
        )
        with working(bench):
            yield bench
        if replay is None and not alone:
            store.sweep(config.run)


def iterate_directly(
    config: Config, store: Store, tools: Tools, progress: Progress | None = None, more: bool = False
) -> Summary:
    """Run one iteration without Prefect, its stages side by side on threads, and give its figures; trackers get them
    too. `more`: as of `run_stages`.

    Raises:
        ConfigError: the settings ask for other hosts, which Prefect would reach.
        R3LError: as of `open_iteration`, and whatever stopped a stage.
    """
    placement = config.placement
    if placement.shards != "here" or placement.update_deployment:
        raise ConfigError(
            f"placement.shards={placement.shards}, placement.update_deployment={placement.update_deployment!r}: other "
            "hosts are reached by Prefect alone; run the flow, or leave both as they are by default"
        )
    iteration = the_iteration(config, store)
    with open_iteration(config, store, iteration, progress=progress, runner=Threads(), tools=tools) as bench:
        refs = run_stages(bench, more)
    summary = summarise(store, config.run, config.branch, iteration)
    summary |= {"store": store.root, "stages_committed": len(refs), "trackers": feed(config, store)}
    return summary


@contextmanager
def working(bench: Workbench) -> Iterator[None]:
    """Do the block's work with `bench`, which is closed when the block ends, and when its runner hears of a cancel.

    Raises:
        Interrupted: the work was ended; the message says by what.
    """
    try:
        with bench.runner.heeding_cancel(bench.close):
            yield
    except BaseException as error:
        if ending := bench.runner.ending(error):
            raise Interrupted(bench.ended or ending) from error
        raise
    finally:
        bench.close()
        memory.give_back()


def withdraw_others(bench: Workbench, refs: list[StageRef]) -> None:
    """Delete what an earlier start of this iteration committed under numbers that it has no more: with other
    `rollout.tasks_per_shard`, or more rounds of retries. The same attempts would be counted twice.
    """
    mine = {ref.key for ref in refs}
    for ref in bench.store.stages(bench.config.run, bench.config.branch, bench.iteration):
        if ref.shard is not None and ref.stage != "evaluations" and ref.key not in mine:
            withdraw(bench.store.files, ref.key)
            log().warning("%s: made with other settings, and not of this iteration any more; deleted", ref.key)


def withdraw_following(store: Store, config: Config, iteration: int, changes: list[Change]) -> None:
    """Delete what was sampled of the next iteration beside an update that was never taken, where this iteration begins
    again with other settings: what a later iteration follows is not made again."""
    stages = {stage for change in changes for stage in stages_of_setting(config, change.name)}
    if all(STAGES[stage].trains for stage in stages) or store.next_iteration(config.run, config.branch) != iteration:
        return
    if following := store.stages(config.run, config.branch, iteration + 1):
        with store.writer_lock(config.run, config.branch, iteration + 1):
            for ref in following:
                withdraw(store.files, ref.key)
        log().warning("iteration %d was sampled after one with other settings; deleted", iteration + 1)


def sample(bench: Workbench) -> list[StageRef]:
    """Run all stages of the iteration but the update and what is learned again. Shards run side by side."""
    batch: StageRef = bench.runner.call(calls.draw_tasks, bench)
    shards = range(shards_of(bench.config.rollout.tasks, bench.config.rollout.tasks_per_shard))
    bench.progress.add("shards", planned=len(shards))
    elsewhere = bench.placement.shards(bench, batch, shards) if bench.placement and bench.replay is None else None
    refs = [batch, *(shard_stages(bench, batch, shards) if elsewhere is None else elsewhere)]
    for wave in waves(bench):
        refs += wave_stages(bench, refs, wave)
    if bench.replay is None:
        withdraw_others(bench, refs)
    return refs


def run_stages(bench: Workbench, more: bool = False) -> list[StageRef]:
    """Run all stages of the iteration. Only the update waits for all shards.

    Args:
        more: another iteration follows for certain: with `training.overlap` it is sampled beside the update.
    """
    if bench.wants("updates"):
        policies.check_optimiser(bench.store, bench.policies)  # before sampling for a step that can't be taken
    refs = sample(bench)
    if bench.wants("updates"):
        read = ("base", "credit", "training_rows")
        bases, credit, rows = ([ref for ref in refs if ref.stage == stage] for stage in read)
        replays = [bench.runner.call(calls.replay_groups, bench, credit, rows)] if replay_buffer.active(bench) else []
        step = update_beside_sampling if more and bench.config.training.overlap else bench.runner.call
        refs += [*replays, step(calls.update, bench, bases, credit, rows, replays)]
    return refs


def update_beside_sampling(update: Callable[..., StageRef], bench: Workbench, *parents: list[StageRef]) -> StageRef:
    """Take the iteration's update while the next iteration is sampled, which finds its stages in the store then. The
    policy that samples it is known before the update, by `TrainingSettings.sampled_before`."""
    config, number = bench.config.model_copy(update={"iteration": None}), bench.iteration + 1
    log().info("iteration %d is sampled beside the update of iteration %d", number, bench.iteration)
    runner = bench.runner.of_iteration(number)
    # opened before the update begins: opening sweeps parts that no manifest names, as those of a commit under way
    with open_iteration(
        config, bench.store, number, runner=runner, placement=bench.placement, tools=bench.tools
    ) as following:
        step = bench.runner.submit(update, bench, *parents)
        try:
            sample(following)
            ref: StageRef = waited_for(step).result()
        except BaseException as error:
            bench.close(bench.runner.ending(error) or f"beside it, iteration {number} failed: {error}")
            bench.runner.settle([step])
            raise
    return ref
