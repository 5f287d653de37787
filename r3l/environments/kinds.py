"""Environments by the `kind` of their settings: those below, and plug-ins. Finding one loads no game engine."""

from collections.abc import Sequence
from importlib import import_module

from r3l import plugins
from r3l.config.environments import EnvironmentSettings
from r3l.environments import outside
from r3l.environments.base import Judging, Sourced, Verdict, World
from r3l.errors import ConfigError, WorldError
from r3l.records import Task

ENVIRONMENTS = {
    "alfworld": "alfworld.world:AlfworldWorld",
    "gymnasium": "adapters.gym:GymnasiumWorld",
    "household": "household.world:HouseholdWorld",
    "math": "math.world:MathWorld",
    "scienceworld": "scienceworld.world:ScienceWorldWorld",
    "tools": "tools.world:ToolWorld",
    "verifiers": "verifiers.world:VerifiersWorld",
    "webshop": "webshop.world:WebShopWorld",
}
"""The worlds that ship: module in this package, and class. A process imports the world that it plays, and what that
one is built on."""


def make_world(settings: EnvironmentSettings) -> World:
    """Make the world that `settings` describe. Raise `ConfigError` as `world_class` does."""
    world: World = world_class(settings.kind)(settings)
    return world


def world_class(kind: str) -> type:
    """Find the class of a kind's worlds, the package's own or a plug-in's.

    Raises:
        ConfigError: nothing has this kind, or what has it is a plug-in that lacks something of a `World`.
    """
    plugins.refuse_taken("environment", kind, ENVIRONMENTS)
    if kind not in ENVIRONMENTS:
        return plugins.fulfilling(kind, plugins.load("environment", kind), World)
    module, name = ENVIRONMENTS[kind].split(":")
    world: type = getattr(import_module(f"r3l.environments.{module}"), name)
    return world


def data_of(settings: EnvironmentSettings, split: str) -> str:
    """Say what the tasks and rewards of a split are made from, in a few words; "" where the world does not say."""
    world = make_world(settings)
    return world.data(split) if isinstance(world, Sourced) else ""


def tasks_of(settings: EnvironmentSettings, split: str) -> list[Task]:
    """List the tasks of a split, of the types that `settings` ask for.

    Raises:
        ConfigError: there is no task of a type.
        WorldError: there is no such split, or its tasks are not prepared.
    """
    tasks, types_asked = outside.tasks_of(make_world(settings).tasks(split)), set(settings.task_types)
    types = {task.task_type for task in tasks}
    if types_asked - types:
        raise ConfigError(
            f"environment.task_types: {split} has no task of type {', '.join(sorted(types_asked - types))}; "
            f"its types are {', '.join(sorted(types))}"
        )
    return [task for task in tasks if not types_asked or task.task_type in types_asked]


def kinds_with(part: str) -> str:
    """List the kinds whose world has an optional part of the contract, such as ``oracle_pivot``, for messages."""
    return ", ".join(kind for kind in ENVIRONMENTS if hasattr(world_class(kind), part))


def has_oracle(settings: EnvironmentSettings) -> bool:
    """Tell whether the environment has an oracle."""
    return isinstance(make_world(settings), Judging)


def verdict_of(
    settings: EnvironmentSettings, task: Task, actions: Sequence[str], observations: Sequence[str]
) -> Verdict:
    """Judge an episode that was not won. Raise `WorldError` where the environment has no oracle, or its simulator
    failed."""
    world = make_world(settings)
    if not isinstance(world, Judging):
        others = kinds_with("oracle_pivot")
        raise WorldError(f"environment {settings.kind!r} has no oracle; those that have one: {others}")
    return world.oracle_pivot(task, actions, observations)
