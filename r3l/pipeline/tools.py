"""What costs time to start: the engine, the environment workers, and the update's process."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from r3l.config import Config
from r3l.engines import make_engine
from r3l.engines.base import Engine, Sleeping
from r3l.engines.teacher import Teacher
from r3l.environments.workers.pool import WorldPool
from r3l.errors import Interrupted, R3LError
from r3l.exploration.explorer import Incidents
from r3l.pipeline.policies import teacher_of
from r3l.pipeline.teaching import make_teacher
from r3l.pipeline.update.output import WaitingProcess

Tool = TypeVar("Tool", WorldPool, Engine, Teacher)


class Tools:
    """An engine, which loads one policy after another, worker processes of each world, and the update's process. They
    start when first needed."""

    def __init__(self) -> None:
        self.closed = False
        self.incidents = Incidents()
        self.trainer = WaitingProcess()
        self.canary_errors: dict[str, float | None] = {}  # of the engine, by the digest of the policy that it loaded
        self._pools: dict[str, WorldPool] = {}
        self._engine: Engine | None = None
        self._teachers: dict[str, Teacher] = {}
        self._lock = threading.Lock()

    def pool(self, config: Config) -> WorldPool:
        """Start the workers of the configured environment, once. Raise `Interrupted` after `close`."""
        name = config.environment.model_dump_json()
        with self._lock:
            if name not in self._pools:
                self._pools[name] = self._kept(
                    WorldPool(config.environment, on_restart=partial(self.incidents.note, "worker_restarted"))
                )
            return self._pools[name]

    def engine(self, config: Config) -> Engine:
        """Start the configured engine, once. Raise `Interrupted` after `close`."""
        with self._lock:
            if self._engine is None:
                self._engine = self._kept(make_engine(config.engine, config.policy))
            return self._engine

    def teacher(self, config: Config) -> Teacher:
        """Start the model that writes the reflections, once; another one, by its digest, takes its place. Raise
        `Interrupted` after `close`."""
        name = teacher_of(config)
        with self._lock:
            if name not in self._teachers:
                while self._teachers:
                    self._teachers.popitem()[1].close()
                self._teachers[name] = self._kept(make_teacher(config))
            return self._teachers[name]

    def begin(self, config: Config) -> None:
        """Start what the configuration asks for before a stage does: beside it, the caller goes on. Only an engine in
        this process starts early: one that takes a GPU waits until the iteration is this writer's."""
        if config.engine.kind == "transformers_local" and config.placement.shards == "here":
            for start in (self.pool, self.engine):
                threading.Thread(target=_early, name="r3l-early", args=[start, config], daemon=True).start()

    def make_room(self) -> None:
        """Have the engine leave its GPU to an update on this host. Raise `EngineError` where it can't."""
        if isinstance(self._engine, Sleeping):
            self._engine.sleep()

    def _kept(self, tool: Tool) -> Tool:
        """Keep a tool that has started. Where the tools were closed meanwhile, close it at once and raise
        `Interrupted`."""
        if self.closed:
            tool.close()
            raise Interrupted("the engine and the environment workers were closed")
        return tool

    def close(self) -> None:
        """Close what has started; a call that waits for it fails with `Interrupted`."""
        self.closed = True
        for pool in self._pools.values():
            pool.close()
        for tool in (self._engine, *self._teachers.values()):
            if tool is not None:
                tool.close()
        self.trainer.close()


def _early(start: Callable[[Config], object], config: Config) -> None:
    with suppress(R3LError):  # the stage that asks for it tries again, and says why it fails
        start(config)
