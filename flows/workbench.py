"""What the tasks of one flow run share: the store, and an engine and environment workers that start when first needed."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from flows.policies import Policies, pullable
from r3l.config import Config
from r3l.engines import make_engine
from r3l.engines.base import Engine
from r3l.engines.canary import check_canary
from r3l.engines.chat_format import ChatFormat
from r3l.environments import make_world
from r3l.environments.oracles import has_oracle
from r3l.environments.pool import WorldPool
from r3l.exploration.explorer import Explorer, Limits
from r3l.exploration.tally import Tally
from r3l.store.schemas import STAGES
from r3l.store.stage import Store

ORDER = list(STAGES)
CANARY = "canary.json"


@dataclass(frozen=True)
class Replay:
    """Take stages before `from_stage` from `source_branch`, compute up to `to_stage`."""

    source_branch: str
    from_stage: str
    to_stage: str


class Workbench:
    """An ordinary class on purpose: Prefect looks into dataclasses and models that are passed to tasks, not into this.

    A stage that is already stored needs no explorer, so a rerun of a finished iteration loads no model and no world.
    """

    def __init__(self, config: Config, store: Store, iteration: int, policies: Policies, tally: Tally,
                 replay: Replay | None = None) -> None:
        self.config, self.store, self.iteration, self.policies, self.tally = config, store, iteration, policies, tally
        self.replay = replay
        self.canary_error: float | None = None
        self.stopped = threading.Event()  # set at the end: what waits for work elsewhere gives up, and cancels it
        self._explorer: Explorer | None = None
        self._equipped = False
        self._lock = threading.Lock()
        self._open = ExitStack()

    @property
    def explorer(self) -> Explorer:
        """Started by the first stage that samples; shared by all shards.

        Raises:
            EngineError: the engine can't load the policy, or its log-probabilities are not the trainer's.
            WorldError: the environment's data are not there.
        """
        with self._lock:
            if self._explorer is None:
                self._explorer = self._start()
            return self._explorer

    def _start(self) -> Explorer:
        config = self.config
        self.tally.add("engine", planned=1)
        world, pool = make_world(config.environment), self._make_pool()
        engine = self._load_policy()
        self.tally.add("engine", done=1)
        self.tally.finish("engine")
        chat = ChatFormat.load(self.policies.start.path, config.policy.thinking)
        return Explorer(world, pool, engine, chat, self.policies.behaviour.digest, limits(config), self.tally)

    def equip(self) -> None:
        """Give the sampling servers the policy, once, for hosts that take them as they are. Other engines are each host's own."""
        with self._lock:
            if self.config.engine.kind == "vllm_server" and not self._equipped:
                self._load_policy()
                self._equipped = True

    def _load_policy(self) -> Engine:
        engine = self._make_engine()
        pulled = getattr(self.config.engine, "puller_port", 0)
        engine.load_policy(pullable(self.store, self.policies.behaviour) if pulled else self.policies.behaviour)
        self.canary_error = check_canary(engine, canary_of(self.policies.behaviour_folder), self.config.policy.dtype,
                                         self.config.engine.canary_tolerance)
        return engine

    def _make_pool(self) -> WorldPool:
        pool = WorldPool(self.config.environment)
        self._open.callback(pool.close)
        return pool

    def _make_engine(self) -> Engine:
        engine = make_engine(self.config.engine, self.config.policy)
        self._open.callback(engine.close)
        return engine

    def wants(self, stage: str) -> bool:
        """Whether the stage is part of what is being run: a replay may end early."""
        return self.replay is None or ORDER.index(stage) <= ORDER.index(self.replay.to_stage)

    def takes_stored(self, stage: str) -> bool:
        """Whether a replay takes the stage as it was stored."""
        return self.replay is not None and ORDER.index(stage) < ORDER.index(self.replay.from_stage)

    @property
    def judges(self) -> bool:
        """Whether failed bases are judged by an oracle: not where a replay takes the bases with their verdicts from the store."""
        return has_oracle(self.config.environment) and self.wants("oracle_pivots") and not self.takes_stored("oracle_pivots")

    def count(self, counts: dict[str, dict[str, float]]) -> None:
        """Add what was counted elsewhere."""
        for stage, amounts in counts.items():
            self.tally.add(stage, **amounts)

    def close(self) -> None:
        self.stopped.set()
        self._open.close()


def limits(config: Config) -> Limits:
    """The bounds of an episode, drawn from the settings."""
    return Limits(
        max_turns=config.environment.max_turns, reply_tokens=config.environment.reply_tokens,
        bad_reply=config.environment.bad_reply, malformed_reward=config.environment.malformed_reward,
        temperature=config.rollout.temperature, reflection_temperature=config.rollout.reflection_temperature,
        reflection_tokens=config.rollout.reflection_tokens, structured_reflections=config.rollout.structured_reflections)


def canary_of(folder: Path | None) -> Path | None:
    """The canary that the update wrote beside its policy; a starting policy has none."""
    path = folder / CANARY if folder else None
    return path if path and path.is_file() else None
