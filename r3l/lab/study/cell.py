"""A run of an experiment in one process: the stages of iterations and evaluations as plain calls, one engine and one
pool for all.

What lands in the store is what the flows `r3l` and `r3l-evaluate` write; only Prefect's records of it are missing.
"""

import math
import time
from collections.abc import Callable, Sequence

from r3l.config import Config
from r3l.config.compose import assign, validate
from r3l.evaluation.benchmarks import pose
from r3l.lab.study.experiment import Fork
from r3l.pipeline import preflight
from r3l.pipeline.evaluation import evaluate
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.pipeline.tools import Tools
from r3l.pipeline.workbench import Replay
from r3l.store.stage import Store

OnIteration = Callable[[int], None]


def run_cell(
    config: Config,
    iterations: int,
    until: float = math.inf,
    on_iteration: OnIteration = lambda done: None,
    forks: Sequence[Fork] = (),
    forked_iterations: int = 0,
) -> bool:
    """Evaluate the starting policy, then train and evaluate until the run has all iterations. Stored results are not
    computed again.

    Args:
        until: time (of `time.time`) after which no further iteration begins.
        on_iteration: called with the number of iterations that the run has, whenever it changes.

    Returns:
        Whether the run has all its iterations and evaluations.

    Raises:
        R3LError: whatever stopped it; calling again goes on where it stopped.
    """
    config = on_the_first_tasks(in_one_shard(config))
    store, tools = preflight.ready(config), Tools()
    try:
        evaluate_cell(config, store, -1, tools)
        next_iteration = store.next_iteration(config.run)
        for iteration in range(iterations):
            if time.time() > until:
                return False
            if iteration >= next_iteration:
                iterate_cell(config, store, iteration, tools)
                on_iteration(iteration + 1)
            if config.evaluation.every and (iteration + 1) % config.evaluation.every == 0:
                evaluate_cell(config, store, iteration, tools)
        for iteration in range(min(forked_iterations, iterations) if forks else 0):
            for fork in forks:
                if time.time() > until:
                    return False
                fork_cell(config, store, iteration, fork, tools)
    finally:
        tools.close()
    return True


def in_one_shard(config: Config) -> Config:
    """Put all tasks into one shard: shards are computed one after another here, and the engine then has all episodes at
    once."""
    return config.model_copy(
        update={"rollout": config.rollout.model_copy(update={"tasks_per_shard": config.rollout.tasks})}
    )


def on_the_first_tasks(config: Config) -> Config:
    """Test every policy of an experiment on the first tasks of the split, as those of the kept results were."""
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"sample": "first"})})


def iterate_cell(config: Config, store: Store, iteration: int, tools: Tools) -> None:
    """Compute one iteration, as the flow `r3l` does."""
    with open_iteration(config, store, iteration, tools=tools) as bench:
        run_stages(bench)


def fork_cell(config: Config, store: Store, iteration: int, fork: Fork, tools: Tools) -> None:
    """Retry the stored bases and reflections of an iteration under other settings, as a branch named after the fork."""
    settings = assign(config.model_dump(mode="json"), fork.settings)
    other = validate(settings | {"branch": fork.name, "iteration": iteration})
    replay_request = Replay("", "retries", "distilled")
    with open_iteration(other, store, iteration, tools=tools, replay=replay_request) as bench:
        run_stages(bench)


def evaluate_cell(config: Config, store: Store, iteration: int, tools: Tools) -> None:
    """Test episodes with the policy that `iteration` made; -1: the starting one."""
    evaluate(pose(config), store, iteration, tools=tools)
