"""The engines, including those of plug-ins. Nothing here imports torch, vllm or an HTTP client before an engine is
made."""

import os
from collections.abc import Callable

from r3l import plugins
from r3l.config.engines import AnyEngine, TransformersLocalSettings, VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import Engine


def _transformers_local(settings: AnyEngine, policy: PolicySettings) -> Engine:
    assert isinstance(settings, TransformersLocalSettings)
    # threads that spin while they wait starve the environments' workers
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from r3l.engines.embedded.engine import TransformersLocal

    return TransformersLocal(settings, policy)


def _vllm_server(settings: AnyEngine, policy: PolicySettings) -> Engine:
    assert isinstance(settings, VllmServerSettings)
    if settings.gpus:
        from r3l.engines.vllm.own_servers import OwnServers

        return OwnServers(settings, policy)
    from r3l.engines.vllm.server import VllmServer

    return VllmServer(settings, policy)


ENGINES: dict[str, Callable[[AnyEngine, PolicySettings], Engine]] = {
    "transformers_local": _transformers_local,
    "vllm_server": _vllm_server,
}


def make_engine(settings: AnyEngine, policy: PolicySettings) -> Engine:
    """Make the engine of `settings.kind`, without a policy yet: call `load_policy` before `complete`.

    Raises:
        ConfigError: as of `maker`. EngineError: what the engine needs is not installed, or no server answers.
    """
    return maker(settings)(settings, policy)


def maker(settings: AnyEngine) -> Callable[[AnyEngine, PolicySettings], Engine]:
    """Find what makes the engine of `settings.kind`.

    Raises:
        ConfigError: nothing has this kind, or what has it is a plug-in that lacks something of an `Engine`.
    """
    plugins.refuse_taken("engine", settings.kind, ENGINES)
    return ENGINES.get(settings.kind) or plugins.fulfilling(
        settings.kind, plugins.load("engine", settings.kind), Engine
    )
