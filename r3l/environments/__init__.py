"""Environments by the `kind` of their settings. Importing this package loads no game engine."""

from __future__ import annotations

from r3l.config.environments import EnvironmentSettings
from r3l.environments.alfworld import AlfworldWorld
from r3l.environments.base import World
from r3l.environments.household import HouseholdWorld
from r3l.environments.mathematics import MathWorld
from r3l.environments.scienceworld import ScienceWorldWorld
from r3l.environments.webshop import WebShopWorld
from r3l.errors import ConfigError

ENVIRONMENTS: dict[str, type] = {
    "alfworld": AlfworldWorld,
    "household": HouseholdWorld,
    "math": MathWorld,
    "scienceworld": ScienceWorldWorld,
    "webshop": WebShopWorld,
}


def make_world(settings: EnvironmentSettings) -> World:
    """The world that `settings` describe. Raises `ConfigError` where none is listed under their kind."""
    kind = getattr(settings, "kind", "")
    if kind not in ENVIRONMENTS:
        raise ConfigError(f"environment {kind!r} is not available: expected one of {', '.join(sorted(ENVIRONMENTS))}")
    world: World = ENVIRONMENTS[kind](settings)
    return world
