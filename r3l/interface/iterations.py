"""Settings, iterations, training and evaluations from Python: the same stages as the flows run, in this process."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from r3l import plugins
from r3l.config import Config
from r3l.config.compose import Asked
from r3l.engines.policy_names import model_of
from r3l.errors import ConfigError
from r3l.evaluation.benchmarks import pose
from r3l.evaluation.score import score
from r3l.exploration.progress import Progress
from r3l.pipeline import evaluation, preflight
from r3l.pipeline.iteration import iterate_directly
from r3l.pipeline.runner import Threads
from r3l.pipeline.settings.continuing import compose_for_run
from r3l.pipeline.tools import Tools

Figures = dict[str, Any]


def compose(
    *,
    run: str = "demo",
    policy: str | Path = "",
    environment: str | type = "",
    method: str | type = "",
    engine: str | type = "",
    machine: str = "",
    settings: Mapping[str, Any] | None = None,
    change: bool = False,
) -> Config:
    """Compose the settings of a run: of one that is in the store its newest, else the presets latent, alfworld and
    paper; then the presets that are named, then `settings` on top of them.

    Args:
        run: its name in the store (of ``settings["store.root"]``, else R3L_STORE, else data/runs).
        policy: a preset, a folder with a transformers model, or a name on the model hub.
        environment, method: a preset, a preset's file (.toml), the name of an installed plug-in, ``module:Class``, or
            the class itself, of a module that worker processes can import too.
        engine: a kind, or as for an environment; empty: the presets'.
        machine: a preset of a machine; empty: this one.
        settings: values by their dotted names, as ``{"method.alpha": 5, "rollout.tasks": 16}``.
        change: whether a run that is there may go on with another policy, environment or method.

    Raises:
        ConfigError: a preset or a setting is unknown, a value is out of bounds, or a class can't be imported by others.
    """
    model, assignments_given = model_of(str(policy), machine) if policy else ("", [])
    if engine:
        assignments_given.append(f"engine.kind={name_of(engine)}")
    choices = Asked.of(
        policy=model,
        environment=name_of(environment),
        method=name_of(method),
        machine=machine,
        run=run,
        change=change,
        assignments=[*assignments_given, *assignments(settings or {})],
    )
    return compose_for_run(choices)


def name_of(kind: str | type) -> str:
    """Name a preset or kind; a class by its dotted path."""
    if isinstance(kind, str):
        return kind
    if kind.__module__ == "__main__" or "." in kind.__qualname__:
        raise ConfigError(
            f"{kind.__qualname__} is defined in a script, a notebook or a function, where worker processes can't "
            "import it: put it at the top of a module of its own (a file my_world.py beside this one)"
        )
    path = f"{kind.__module__}:{kind.__qualname__}"
    plugins.allow(path)
    return path


def assignments(settings: Mapping[str, Any]) -> list[str]:
    """Write settings by dotted names as assignments. Raise `ConfigError` for a value that is none of JSON's."""
    try:
        return [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    except TypeError as error:
        raise ConfigError(f"a setting is a text, a number, true, false, null or a list of them: {error}") from error


def iterate(config: Config, *, progress: Progress | None = None, prefect: bool = False) -> Figures:
    """Run one training iteration: the run's next one, or the one that `config.iteration` names. What is stored of it is
    not computed again.

    Args:
        progress: counts what is done, stage by stage, while it is done.
        prefect: run the flow `r3l` instead, on the Prefect server that is configured, else on one for this process.

    Returns:
        The iteration's figures, by column of the view `iterations`; `stages` has the seconds of each stage.

    Raises:
        R3LError: what is wrong, before work starts where that can be known.
    """
    if prefect:
        from flows import iterate as iteration_flow

        return _flow_run(iteration_flow.iterate, config)
    tools = Tools()
    try:
        return dict(iterate_directly(config, preflight.ready(config), tools, progress))
    finally:
        tools.close()


def _flow_run(flow: Any, config: Config) -> Figures:
    """Run a flow, whose form takes all settings too."""
    return dict(flow(config))


def train(
    config: Config,
    iterations: int,
    on_iteration: Callable[[Figures], object] | None = None,
    *,
    progress: Progress | None = None,
    prefect: bool = False,
) -> list[Figures]:
    """Run further iterations, one after another, with one engine and one set of environment workers for all.

    After every `config.evaluation.every` iterations the new policy is evaluated, and the figures have that as
    `evaluation`.

    Args:
        iterations: how many, 1 or more.
        on_iteration: called with the figures of each iteration when it has ended; False ends the training.
        progress, prefect: as of `iterate`; with `prefect` each iteration is a flow run of its own.

    Raises:
        ConfigError: fewer than one iteration, or one of a fixed number. R3LError: as of `iterate`.
    """
    if iterations < 1 or config.iteration is not None:
        raise ConfigError(
            f"train: iterations={iterations}, config.iteration={config.iteration}: expected 1 or more further "
            "iterations, and an empty config.iteration"
        )
    figures_of: list[Figures] = []
    tools = Tools()
    try:
        store = preflight.ready(config)
        while len(figures_of) < iterations:
            more = len(figures_of) + 1 < iterations
            figures: Figures = (
                iterate(config, prefect=True)
                if prefect
                else dict(iterate_directly(config, store, tools, progress, more))
            )
            if config.evaluation.follows(figures["iteration"]):
                figures["evaluation"] = _evaluated(config, tools, progress, prefect)
            figures_of.append(figures)
            if on_iteration is not None and on_iteration(figures) is False:
                break
    finally:
        tools.close()
    return figures_of


def evaluate(config: Config, *, progress: Progress | None = None, prefect: bool = False) -> Figures:
    """Play test episodes and score them: with the newest policy of the run, that of `config.iteration`, or (-1) the
    starting one. The section `evaluation` says on which benchmark, how many tasks and how often.

    Returns:
        rate, low and high (95 %), solved, episodes, and what was played: benchmark, split, tasks, repeats, policy.

    Raises:
        R3LError: as of `iterate`.
    """
    tools = Tools()
    try:
        return _evaluated(config, tools, progress, prefect)
    finally:
        tools.close()


def _evaluated(config: Config, tools: Tools, progress: Progress | None, prefect: bool) -> Figures:
    if prefect:
        from flows import evaluate as evaluation_flow

        return _flow_run(evaluation_flow.evaluate, config)
    test = pose(config)
    store = preflight.ready(test.config, training=False)
    iteration = evaluation.evaluated_iteration(config, store)
    ref = evaluation.evaluate(test, store, iteration, progress=progress, runner=Threads(), tools=tools)
    rows = store.read(ref, "evaluations").to_pylist()
    whole = score([(row["success"], row["reward"]) for row in rows], [row["task_id"] for row in rows])
    columns = ("benchmark", "format", "protocol", "split", "data", "tasks", "of_tasks", "repeats", "policy")
    return {
        "run": config.run,
        "iteration": iteration,
        **{name: rows[0][name] for name in columns},
        "solved": whole.solved,
        "episodes": whole.episodes,
        "rate": whole.rate,
        "low": whole.low,
        "high": whole.high,
        "reward": whole.reward,
    }
