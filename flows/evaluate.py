"""The flow `r3l-evaluate`: any policy of a run on a test split, at the test temperature."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flows import prefect_settings

prefect_settings.apply()

from prefect import flow  # noqa: E402
from prefect.artifacts import create_table_artifact  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402

from flows import policies, preflight, server, stored, tracking  # noqa: E402
from flows.artifacts import artifact_key  # noqa: E402
from flows.identity import stage_settings  # noqa: E402
from flows.iterate import RUNNER, WATCHED  # noqa: E402
from flows.logs import log  # noqa: E402
from flows.stage_task import stage_task  # noqa: E402
from flows.workbench import Workbench  # noqa: E402
from r3l.config import Config, compose  # noqa: E402
from r3l.environments import tasks_of  # noqa: E402
from r3l.errors import ConfigError  # noqa: E402
from r3l.evaluation.benchmarks import Posed, pose  # noqa: E402
from r3l.evaluation.play import evaluation_rows, evaluation_stage  # noqa: E402
from r3l.evaluation.score import by_type, score  # noqa: E402
from r3l.exploration.tally import Tally  # noqa: E402
from r3l.records import Task  # noqa: E402
from r3l.seeds import derive  # noqa: E402
from r3l.store.layout import StageKey, StageRef  # noqa: E402
from r3l.store.stage import Store, fingerprint  # noqa: E402


@flow(name="r3l-evaluate", flow_run_name="evaluate {config.run}", task_runner=RUNNER, validate_parameters=True)
def evaluate(config: Config = compose()) -> dict[str, Any]:  # noqa: B008 (frozen; what the form shows)
    """Play test episodes with a policy of the run and score them.

    Args:
        config: as for an iteration; `iteration` is the one whose new policy is evaluated, empty the newest, -1 the start, and
            the section evaluation says on which benchmark, how many tasks and how often.
    """
    test = pose(config)
    store = preflight.check(test.config, training=False)
    newest = store.next_iteration(config.run, config.branch) - 1
    iteration = newest if config.iteration is None else config.iteration
    if iteration > newest:
        raise ConfigError(f"iteration={iteration}: run {config.run} has policies up to iteration {newest} (-1: the starting policy)")
    found = scored(config, evaluate_task(test, store, iteration), store)
    return found | {"trackers": tracking.feed(config, store)}


@stage_task(name="evaluations", task_run_name="evaluations iteration={iteration}", cache_policy=NO_CACHE)
def evaluate_task(test: Posed, store: Store, iteration: int, make_bench: Callable[..., Workbench] = Workbench) -> StageRef:
    """The stored evaluation where there is one of the same policy and settings; else play it."""
    config, began = test.config, time.monotonic()
    found = policies.find(config, store, iteration + 1).as_evaluated()
    settings = {"benchmark": test.benchmark, "format": test.format, "protocol": test.protocol,
                "evaluation": config.evaluation.model_dump(mode="json", exclude={"every"}),
                "environment": stage_settings(config, "tasks")["environment"]}
    identity = fingerprint("evaluations", settings, [], found.learner.digest, config.seed, {"iteration": iteration})
    key = place(store, config, iteration, settings)
    if ref := store.find(key, identity):
        log().info("evaluations: found in the store, not played again")
        return ref
    bench = make_bench(config, store, iteration, found, WATCHED.get(config.run) or Tally())
    try:
        with server.holding("evaluations"):
            episodes = evaluation_stage(bench.explorer, held_out(config, iteration), config.evaluation.repeats,
                                        config.evaluation.temperature, name=f"evaluation{key.shard}")
    finally:
        bench.close()
    rows = evaluation_rows(episodes, benchmark=test.benchmark, answer_format=test.format, protocol=test.protocol,
                           temperature=config.evaluation.temperature)
    return store.commit(key, {"evaluations": rows} | stored.tables(episodes), fingerprint=identity, settings=settings,
                        policy=found.learner.digest, seed=config.seed, metrics={"seconds": round(time.monotonic() - began, 3)})


def place(store: Store, config: Config, iteration: int, settings: dict[str, Any]) -> StageKey:
    """A shard for each benchmark, format and protocol of an iteration: its own where it was played before, else the next one."""
    taken = [ref for ref in store.stages(config.run, config.branch, iteration) if ref.stage == "evaluations"]
    names = ("benchmark", "format", "protocol")
    mine = [ref.shard for ref in taken if all(store.manifest(ref)["settings"][name] == settings[name] for name in names)]
    return StageKey(config.run, config.branch, iteration, "evaluations", mine[0] if mine else len(taken))


def held_out(config: Config, iteration: int) -> list[Task]:
    """The first `evaluation.tasks` tasks of the test split: the same ones for every policy."""
    tasks = tasks_of(config.environment, config.evaluation.split)
    if config.evaluation.tasks > len(tasks):
        raise ConfigError(f"evaluation.tasks={config.evaluation.tasks}: {config.environment.kind}/{config.evaluation.split} has only "
                          f"{len(tasks)} tasks")
    return [replace(one, iteration=iteration, task=slot, seed=derive(config.seed, "evaluation", slot))
            for slot, one in enumerate(tasks[: config.evaluation.tasks])]


def scored(config: Config, ref: StageRef, store: Store) -> dict[str, Any]:
    """The score, in all and by task type, as an artifact and as the result."""
    rows = store.read(ref, "evaluations").to_pylist()
    whole = score([(row["success"], row["reward"]) for row in rows])
    types = by_type((row["task_type"], row["success"], row["reward"]) for row in rows)
    table = [{"task type": name, "solved": one.solved, "episodes": one.episodes, "rate": f"{one.rate:.1%}",
              "95 %": f"{one.low:.1%} – {one.high:.1%}", "mean reward": f"{one.reward:.3f}"}
             for name, one in [*types.items(), ("all", whole)]]
    posed = ", ".join(filter(None, (rows[0][name] for name in ("benchmark", "format", "protocol"))))
    create_table_artifact(table=table, key=f"{artifact_key(config.run, config.branch)}-evaluation",
                          description=f"{config.run}, policy of iteration {ref.iteration}, {posed}")
    broken = [row["trajectory_id"] for row in rows if row["status"] in {"environment_error", "engine_error"}]
    return {"run": config.run, "branch": config.branch, "iteration": ref.iteration,
            **{name: rows[0][name] for name in ("benchmark", "format", "protocol", "policy")}, "posed": posed,
            "solved": whole.solved, "episodes": whole.episodes, "rate": whole.rate, "low": whole.low, "high": whole.high,
            "table": table, "broken": broken}
