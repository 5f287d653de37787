"""What `import r3l` gives, one name a line: it is imported when the first of them is used."""

from r3l.config.engines import EngineSettings
from r3l.config.environments.shared import EnvironmentSettings
from r3l.config.methods.shared import MethodSettings
from r3l.config.model import Config
from r3l.engines.base import Engine
from r3l.environments.base import Environment, World
from r3l.errors import R3LError
from r3l.interface.iterations import compose, evaluate, iterate, train
from r3l.interface.store import Answer, Replayed, Run, Tables, open_store
from r3l.methods.base import Method

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
    "compose",
    "evaluate",
    "iterate",
    "open_store",
    "train",
]
