"""Test episodes of a policy of the run, as a stage of the iteration that made it."""

from typing import Any

from r3l.config import Config
from r3l.errors import ConfigError, StoreError
from r3l.evaluation.benchmarks import Posed
from r3l.evaluation.play import evaluated_tasks, evaluation_columns, evaluation_key, evaluation_rows, evaluation_stage
from r3l.exploration.progress import Progress
from r3l.pipeline import policies
from r3l.pipeline.iteration import working
from r3l.pipeline.runner import Runner
from r3l.pipeline.stages import stage_io
from r3l.pipeline.stages.identity import stage_settings
from r3l.pipeline.stages.run_stage import run_stage
from r3l.pipeline.tools import Tools
from r3l.pipeline.workbench import Workbench
from r3l.store.layout import StageRef
from r3l.store.stage import Store


def evaluate(
    test: Posed,
    store: Store,
    iteration: int,
    *,
    progress: Progress | None = None,
    runner: Runner | None = None,
    tools: Tools | None = None,
) -> StageRef:
    """Evaluate the policy that `iteration` made (-1: the starting one), or find its evaluation in the store.

    Args:
        progress, runner, tools: as of `r3l.pipeline.iteration.open_iteration`.

    Raises:
        ConfigError: more tasks are asked for than the split has.
        Interrupted: the work was ended from outside.
    """
    snapshots = policies.find(test.config, store, iteration + 1).as_evaluated()
    bench = Workbench(test.config, store, iteration, snapshots, progress or Progress(), runner=runner, tools=tools)
    with working(bench):
        ref: StageRef = bench.runner.call(play, bench, test, iteration)
        return ref


def play(bench: Workbench, test: Posed, iteration: int) -> StageRef:
    """Find the stored evaluation where there is one of the same policy and settings; else play it and store it beside
    the others, at the next place where another one took its place meanwhile."""
    config, store = bench.config, bench.store
    terms = {"benchmark": test.benchmark, "format": test.format, "protocol": test.protocol}
    settings = terms | stage_settings(config, "evaluations")
    tables: stage_io.Tables = {}

    def compute() -> stage_io.Tables:
        return tables or play_once(bench, test, iteration, settings, tables)

    while True:
        key = evaluation_key(store, config, iteration, settings, bench.policies.behaviour.digest)
        try:
            return run_stage(bench, "evaluations", key.shard, [], compute, extra=terms)
        except StoreError:
            if key == evaluation_key(store, config, iteration, settings, bench.policies.behaviour.digest):
                raise


def evaluated_iteration(config: Config, store: Store) -> int:
    """Choose the iteration whose new policy is evaluated: the one asked for (-1: the starting policy), else the
    newest.

    Raises:
        ConfigError: the run has not come so far, or has no such branch.
    """
    if config.branch and config.branch not in (branches := store.branches(config.run)):
        raise ConfigError(
            f"branch={config.branch}: run {config.run} has {', '.join(branches) or 'no branches'}; leave it empty for "
            "the run itself"
        )
    newest = store.next_iteration(config.run, config.branch) - 1
    iteration = newest if config.iteration is None else config.iteration
    if iteration > newest:
        raise ConfigError(
            f"iteration={iteration}: run {config.run} has policies up to iteration {newest} (-1: the starting policy)"
        )
    return iteration


def play_once(
    bench: Workbench, test: Posed, iteration: int, settings: dict[str, Any], made: stage_io.Tables
) -> stage_io.Tables:
    """Play the evaluation, and keep its tables in `made`: what has been played is played once."""
    evaluation = bench.config.evaluation
    tasks, whole = evaluated_tasks(bench.config, iteration)
    about = evaluation_columns(test, settings, len(tasks), whole)
    name = f"evaluation-{about['evaluation']}"
    episodes = evaluation_stage(bench.explorer, tasks, evaluation.repeats, evaluation.temperature, name=name)
    made |= {"evaluations": evaluation_rows(episodes, about)} | stage_io.tables(episodes)
    return made
