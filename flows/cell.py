"""A run of an experiment in one process: the stages of iterations and evaluations as plain calls, one engine and one pool for all.

What lands in the store is what the flows `r3l` and `r3l-evaluate` write; only Prefect's records of it are missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from flows import iterate, policies, preflight
from flows.evaluate import evaluate_task
from flows.recorded import save_config
from flows.update import sweep_staging
from flows.workbench import Replay, Workbench
from r3l.config import Config
from r3l.config.compose import assigned, validated
from r3l.config.experiment import Fork
from r3l.engines import make_engine
from r3l.engines.base import Engine
from r3l.environments.pool import WorldPool
from r3l.evaluation.benchmarks import pose
from r3l.exploration.tally import Tally
from r3l.store.stage import Store

Heard = Callable[[int], None]


class Tools:
    """What outlasts an iteration: an engine, which loads one policy after the other, and the world's worker processes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._open = ExitStack()
        self._pool: WorldPool | None = None
        self._engine: Engine | None = None

    @property
    def pool(self) -> WorldPool:
        if self._pool is None:
            self._pool = WorldPool(self.config.environment)
            self._open.callback(self._pool.close)
        return self._pool

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = make_engine(self.config.engine, self.config.policy)
            self._open.callback(self._engine.close)
        return self._engine

    def close(self) -> None:
        self._open.close()

    def bench(self, *args: Any) -> Workbench:
        """A workbench that borrows them."""
        return CellBench(self, *args)


class CellBench(Workbench):
    """A workbench whose engine and pool are there already, and stay when it closes."""

    def __init__(self, tools: Tools, *args: Any) -> None:
        super().__init__(*args)
        self.tools = tools

    def _make_pool(self) -> WorldPool:
        return self.tools.pool

    def _make_engine(self) -> Engine:
        return self.tools.engine


def run_cell(config: Config, iterations: int, until: float = math.inf, heard: Heard = lambda done: None,
             forks: Sequence[Fork] = (), forked_iterations: int = 0) -> bool:
    """Evaluate the start, then train and evaluate until the run has its iterations. What is stored is not done again.

    Args:
        until: time (of `time.time`) after which no further iteration begins.
        heard: told of the number of iterations that the run has, whenever it changes.

    Returns:
        Whether the run has all its iterations and evaluations.

    Raises:
        R3LError: whatever stopped it; calling again goes on where it stopped.
    """
    config = in_one_shard(config)
    store, tools = preflight.check(config), Tools(config)
    try:
        evaluate_cell(config, store, -1, tools)
        stored = store.next_iteration(config.run)
        for iteration in range(iterations):
            if time.time() > until:
                return False
            if iteration >= stored:
                iterate_cell(config, store, iteration, tools)
                heard(iteration + 1)
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
    """Shards are computed one after another here, so all tasks are in one: the engine has all their episodes at once."""
    return config.model_copy(update={"rollout": config.rollout.model_copy(update={"tasks_per_shard": config.rollout.tasks})})


def iterate_cell(config: Config, store: Store, iteration: int, tools: Tools) -> None:
    """One iteration, as the flow `r3l` computes it."""
    with store.writer_lock(config.run, config.branch, iteration):
        store.sweep(config.run)
        sweep_staging(store.run_folder(config.run, config.branch))
        save_config(store, config, iteration)
        bench = tools.bench(config, store, iteration, policies.find(config, store, iteration), Tally())
        try:
            iterate.stages(bench)
        finally:
            bench.close()


def fork_cell(config: Config, store: Store, iteration: int, fork: Fork, tools: Tools) -> None:
    """The stored bases and reflections of an iteration, retried under other settings, as a branch named after the fork."""
    settings = assigned(config.model_dump(mode="json"), fork.settings)
    other = validated(settings | {"branch": fork.name, "iteration": iteration})
    with store.writer_lock(config.run, fork.name, iteration):
        save_config(store, other, iteration)
        found = policies.find(config, store, iteration)
        bench = tools.bench(other, store, iteration, found, Tally(), Replay("", "retries", "distilled"))
        try:
            iterate.stages(bench)
        finally:
            bench.close()


def evaluate_cell(config: Config, store: Store, iteration: int, tools: Tools) -> None:
    """Test episodes with the policy that `iteration` made; -1: the starting one."""
    evaluate_task(pose(config), store, iteration, tools.bench)
