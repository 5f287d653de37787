"""A small run of everything that `r3l check` looks at: iterations, the last with other settings, a fork, branches by
replay, an evaluation."""

from pathlib import Path

from r3l.config import Config, compose
from r3l.evaluation.benchmarks import pose
from r3l.pipeline.evaluation import evaluate
from r3l.pipeline.iteration import iterate_directly
from r3l.pipeline.replay import recompute
from r3l.pipeline.tools import Tools
from r3l.pipeline.workbench import Replay
from r3l.store.stage import Store

RUN = "paper"


SIZE = ("rollout.tasks=6", "rollout.tasks_per_shard=3", "rollout.group_size=4", "evaluation.tasks=6")


def settings(folder: Path, preset: str, *more: str) -> Config:
    asked = [f"run={RUN}", f"store.root={folder}", *SIZE, *more]
    return compose(method=preset, policy="household", environment="household", assignments=asked)


def healthy_run(folder: Path, iterations: int = 2, preset: str = "paper") -> Path:
    """Make the run in a store of its own, and return the store's folder."""
    config, store, tools = settings(folder, preset), Store.open(str(folder)), Tools()
    try:
        for _ in range(iterations - 1):
            iterate_directly(config, store, tools)
        changed = settings(folder, preset, "rollout.temperature=0.9", "training.learning_rate=2e-4")
        iterate_directly(changed, store, tools)
        evaluate(pose(changed), store, iterations - 1, tools=tools)
        if iterations > 1:
            forked = settings(folder, preset, "branch=fork", "iteration=1", "rollout.temperature=0.8")
            iterate_directly(forked, store, tools)
            recompute(store, RUN, 1, Replay("", "base", "credit"), [])
        recompute(store, RUN, iterations - 1, Replay("", "credit", "training_rows"), ["method.alpha=2"])
    finally:
        tools.close()
    return folder
