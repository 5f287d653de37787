"""Which optional packages a run imports on this host. A plain `pip install r3l` has none of them."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from r3l import plugins
from r3l.config import Config
from r3l.environments import ENVIRONMENTS, make_world
from r3l.environments.base import Packaged
from r3l.errors import ConfigError
from r3l.system.packages import install_command


class Need(NamedTuple):
    """Packages, the setting that asks for them, and what installs them: an extra, else the packages themselves."""

    setting: str
    packages: tuple[str, ...]
    extra: str = ""


def check_packages(config: Config, training: bool = True) -> None:
    """Raise `ConfigError` with one command that installs what is missing: a worker or the update would end of it only
    when the stages before it are stored."""
    absent = {need: [name for name in need.packages if not is_installed(name)] for need in needs(config, training)}
    lacking = {need: names for need, names in absent.items() if names}
    if not lacking:
        return
    extras = sorted({need.extra for need in lacking if need.extra})
    others = [name for need, names in lacking.items() if not need.extra for name in names]
    reasons = "; ".join(f"{need.setting} needs {', '.join(names)}" for need, names in lacking.items())
    raise ConfigError(f"{reasons}: {install_command(extras, others)}")


def needs(config: Config, training: bool) -> Iterator[Need]:
    """Name what is imported here. Hosts that shards or updates are placed on look for themselves."""
    here = config.placement.shards == "here"
    if here:
        kind = config.environment.kind
        with plugins.blaming("environment", kind, ENVIRONMENTS):
            world = make_world(config.environment)
        if isinstance(world, Packaged):
            yield Need(f"environment.kind={kind}", world.packages, kind if kind in ENVIRONMENTS else "")
    if here and config.engine.kind == "transformers_local":
        grammar_packages = ("llguidance",) if config.rollout.structured_reflections else ()
        yield Need(f"engine.kind={config.engine.kind}", ("torch", "transformers"), "trainer")
        yield Need("rollout.structured_reflections=true", grammar_packages, "structured")
    if training and not config.placement.update_deployment:
        yield Need("the update", ("torch", "transformers", "peft"), "trainer")


def is_installed(package: str) -> bool:
    """Look for a package without importing it, which could take seconds."""
    try:
        return package in sys.modules or find_spec(package) is not None
    except ImportError:
        return False
