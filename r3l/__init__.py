"""R3L post-training of language-model agents, where every stage of every iteration is a table.

    import r3l

    config = r3l.compose(environment="household", policy="household", settings={"rollout.tasks": 4})
    r3l.train(config, iterations=3, on_iteration=lambda figures: print(figures["base_success"]))
    r3l.open_store().run("demo").sql("SELECT outcome, count(*) FROM pivots GROUP BY ALL").pandas()

Nothing is loaded before it is used: importing this package loads neither torch nor Prefect.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from r3l.version import __version__

if TYPE_CHECKING:
    from r3l.interface import *

__all__ = [
    "Answer",
    "Config",
    "Engine",
    "EngineSettings",
    "Environment",
    "EnvironmentSettings",
    "Method",
    "MethodSettings",
    "R3LError",
    "Replayed",
    "Run",
    "Tables",
    "World",
    "__version__",
    "compose",
    "evaluate",
    "iterate",
    "open_store",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import the public names when one of them is used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'r3l' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module("r3l.interface"), name)


def __dir__() -> list[str]:
    return list(__all__)
