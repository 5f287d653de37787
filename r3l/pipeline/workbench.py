"""What the tasks of one flow run share: its settings, the store, its policies, and the tools that sample."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from r3l.config import Config
from r3l.config.section import from_settings
from r3l.engines.base import Engine, Hosting, PolicySnapshot, Replicated
from r3l.engines.canary import CANARY, check_canary
from r3l.engines.chat_format import ChatFormat
from r3l.environments.base import World, tools_of
from r3l.environments.kinds import has_oracle, make_world
from r3l.errors import Interrupted
from r3l.exploration.explorer import Explorer, Incidents, Limits
from r3l.exploration.progress import Progress
from r3l.pipeline.policies import Policies, pullable, teacher_of, with_teacher
from r3l.pipeline.runner import Runner
from r3l.pipeline.settings.continuing import load_config
from r3l.pipeline.tools import Tools
from r3l.stages import STAGES
from r3l.store.layout import StageRef
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store
from r3l.training.job import JobSpec, UpdateResult

ORDER = list(STAGES)
LOGS = "logs"  # of the engine's servers, in the run's folder


@dataclass(frozen=True)
class Replay:
    """Take stages before `from_stage` from `source_branch`, compute up to `to_stage`."""

    source_branch: str
    from_stage: str
    to_stage: str


class Placement(Protocol):
    """Take work to other hosts. Each returns None where the work is to be done here."""

    def shards(self, bench: Workbench, batch: StageRef, shards: range, /) -> list[StageRef] | None:
        """Run the stages of all shards."""

    def update(self, bench: Workbench, job: JobSpec, rows: list[str], /) -> UpdateResult | None:
        """Take the step as `take_step` does, for a job with this host's paths of policies and these files of training
        rows, relative to the store's root."""


class Workbench:
    """An ordinary class on purpose: Prefect looks into dataclasses and models that are passed to tasks, not into this.

    A stage that is already stored needs no explorer, so a rerun of a finished iteration loads no model and no world.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        iteration: int,
        policies: Policies,
        progress: Progress,
        *,
        runner: Runner | None = None,
        placement: Placement | None = None,
        tools: Tools | None = None,
        replay: Replay | None = None,
    ) -> None:
        self.config, self.store, self.iteration = config, store, iteration
        self.policies, self.progress = policies, progress
        self.runner, self.placement, self.replay = runner or Runner(), placement, replay
        self.tools, self._own_tools = tools or Tools(), tools is None
        # An iteration that was sampled beside the update before has loaded no policy by itself.
        self.canary_error = self.tools.canary_errors.get(policies.behaviour.digest)
        # Set at the end: what waits gives up, work elsewhere is cancelled, nothing more is committed.
        self.stopped = threading.Event()
        self.ended = ""  # why, in words
        self._explorer: Explorer | None = None
        self._equipped = False
        self._lock = threading.Lock()
        self._closing = threading.Lock()

    @property
    def incidents(self) -> Incidents:
        """What happened to the engine and the environment workers, until a stage's events take it."""
        return self.tools.incidents

    @cached_property
    def teaching(self) -> Config:
        """The settings, with the teacher of this iteration."""
        return with_teacher(self.config, self.store, self.line_taken, self.iteration)

    @cached_property
    def teacher(self) -> str:
        """The digest of the policy that writes the reflections, where it is not the behaviour policy; else empty."""
        return teacher_of(self.teaching)

    @property
    def line_taken(self) -> str:
        """The branch whose policies the iteration works with."""
        return self.replay.source_branch if self.replay else self.config.branch

    @cached_property
    def world(self) -> World:
        return make_world(self.config.environment)

    @cached_property
    def chat(self) -> ChatFormat:
        """The chat format of the starting policy. Raise `ChatFormatError` where its folder has none."""
        return ChatFormat.load(
            self.policies.start.model_path, self.config.policy.thinking, tools_of(self.world), light=True
        )

    @property
    def explorer(self) -> Explorer:
        """Started by the first stage that samples; shared by all shards.

        Raises:
            EngineError: the engine can't load the policy, or its log-probabilities are not the trainer's.
            WorldError: the environment's data are not there.
            Interrupted: the work has ended.
        """
        with self._lock:
            self.going_on()
            if self._explorer is None:
                self._explorer = self._start()
            return self._explorer

    def _start(self) -> Explorer:
        config = self.config
        self.progress.add("engine", planned=1)
        pool, engine = self.tools.pool(config), self._load_policy()
        self.progress.add("engine", done=1)
        self.progress.finish("engine")
        if self.wants("updates") and not config.placement.update_deployment:
            # Its imports are done by the time that the rows are there.
            self.tools.trainer.start(config.training.processes)
        teacher = self.tools.teacher(self.teaching) if self.teacher else None
        behaviour = self.policies.behaviour.digest
        return Explorer(
            self.world, pool, engine, self.chat, behaviour, limits(config), self.progress, self.incidents, teacher
        )

    def equip(self) -> None:
        """Give the sampling servers the policy, once, for hosts that take them as they are. Other engines are each
        host's own."""
        with self._lock:
            if self.config.engine.kind == "vllm_server" and not self._equipped:
                self._load_policy()
                self._equipped = True

    def _load_policy(self) -> Engine:
        engine = self.tools.engine(self.config)
        if isinstance(engine, Hosting):
            engine.attach(self.store.run_folder(self.config.run) / LOGS, self.incidents.note)
        puller_port = getattr(self.config.engine, "puller_port", 0)
        for snapshot in self._loaded_by(engine):
            engine.load_policy(pullable(self.store, snapshot) if puller_port else snapshot)
        self.canary_error = check_canary(
            engine,
            canary_of(self.policies.behaviour_folder),
            self.config.policy.dtype,
            self.config.engine.canary_tolerance,
        )
        self.tools.canary_errors[self.policies.behaviour.digest] = self.canary_error
        comparison = (
            "not compared: no update wrote this policy"
            if self.canary_error is None
            else f"the log-probabilities of the engine and the trainer differ by {self.canary_error:.3g} per token"
        )
        self.incidents.note("canary", self.policies.behaviour.digest, comparison)
        return engine

    def _loaded_by(self, engine: Engine) -> Iterator[PolicySnapshot]:
        """Yield what the engine loads. Servers are given the base of an adapter that no update wrote, too: no canary
        compares such a policy, and they may have been started with another model."""
        behaviour = self.policies.behaviour
        if behaviour.base_path and self.policies.behaviour_folder is None and isinstance(engine, Replicated):
            yield PolicySnapshot(behaviour.base_path, snapshot_digest(behaviour.base_path))
        yield behaviour

    def wants(self, stage: str) -> bool:
        """Tell whether the stage is part of what is being run: a replay may end early."""
        return self.replay is None or ORDER.index(stage) <= ORDER.index(self.replay.to_stage)

    def takes_from_store(self, stage: str) -> bool:
        """Tell whether a replay takes the stage as it was stored."""
        return self.replay is not None and ORDER.index(stage) < ORDER.index(self.replay.from_stage)

    @property
    def settings_told(self) -> Config | None:
        """Find the settings whose changes become rows of `events`; None: none do. A replay that takes stages from the
        store tells what the iteration that it replays told: where nothing was set, its rows are the same."""
        if self.replay is None or self.replay.from_stage == ORDER[0]:
            return self.config
        return load_config(self.store, self.config.run, self.replay.source_branch, self.iteration)

    @property
    def asks_oracle(self) -> bool:
        """Tell whether failed bases are judged by an oracle: not where a replay takes the bases with their verdicts
        from the store."""
        return (
            has_oracle(self.config.environment)
            and self.wants("oracle_pivots")
            and not self.takes_from_store("oracle_pivots")
        )

    def count(self, counts: dict[str, dict[str, float]]) -> None:
        """Add what was counted elsewhere."""
        for stage, amounts in counts.items():
            self.progress.add(stage, **amounts)

    def going_on(self) -> None:
        """Raise `Interrupted` once the work has ended: then nothing begins, and nothing in progress is committed."""
        if self.stopped.is_set():
            raise Interrupted(self.ended)

    def close(self, why: str = "") -> None:
        """End the work: nothing more is committed. With a reason, what is under way ends too: every call that waits
        for the engine or a world fails with `Interrupted`."""
        with self._closing:
            if not self.stopped.is_set():
                self.ended = why or "the iteration has ended"
                self.stopped.set()
        if why or self._own_tools:
            self.tools.close()


def limits(config: Config) -> Limits:
    """Take the bounds of an episode from the settings."""
    return from_settings(Limits, config.environment, config.rollout)


def canary_of(folder: Path | None) -> Path | None:
    """Find the canary that the update wrote beside its policy; a starting policy has none."""
    path = folder / CANARY if folder else None
    return path if path and path.is_file() else None
