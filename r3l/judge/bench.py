"""The workbench on which stored stages are made again."""

from collections.abc import Callable
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

from r3l.config import Config
from r3l.engines.base import PolicySnapshot
from r3l.engines.chat_format import ChatFormat
from r3l.environments.base import tools_of
from r3l.errors import ChatFormatError, ConfigError, Pruned, R3LError, WorldError
from r3l.exploration.explorer import Explorer
from r3l.exploration.progress import Progress
from r3l.judge.recorded import Recorded, RecordedTeacher
from r3l.judge.witness import Made, NotStored, Witness
from r3l.pipeline.policies import Policies, own_teacher, teacher_of
from r3l.pipeline.runner import Runner
from r3l.pipeline.stages import stage_io
from r3l.pipeline.stages.calls import CALLS
from r3l.pipeline.stages.task_batch import label
from r3l.pipeline.tools import Tools
from r3l.pipeline.workbench import Replay, Workbench, limits
from r3l.records import Reflection, Trajectory, Turn
from r3l.store.layout import StageKey, StageRef
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store
from r3l.system.home import locate

UNREADABLE = (R3LError, LookupError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError)
Tell = Callable[[StageKey, str], None]
STAGE_OF = {call: stage for stage, call in CALLS.items()}


class NotAtHand(R3LError):
    """What a stage needs to be made again is not on this machine: the world's data, or a tokenizer."""


class Looking(Runner):
    """Make each stage again. One that can't be is told of, and the stored one stands in for it."""

    def __init__(self, found: Tell = lambda key, what: None, passed_over: Tell = lambda key, what: None) -> None:
        self.found, self.passed_over = found, passed_over
        self.missed: set[StageKey] = set()  # stages that could not be made again

    def call(self, stage: Callable[..., Any], *args: Any) -> Any:
        bench, key = args[0], key_of_call(stage, *args)
        try:
            if not bench.takes_from_store(key.stage):
                bench.store.stored(key)  # else the iteration is under way: nothing tells what was sampled for the stage
            return super().call(stage, *args)
        except NotStored:
            raise
        except NotAtHand as error:
            self.passed_over(key, str(error))
        except (WorldError, Pruned) as error:  # its data are not prepared here, or not there any more
            self.passed_over(key, str(error))
        except UNREADABLE as error:
            if isinstance(error, ConfigError) and "teacher" in str(error):  # it was a folder of the machine of the run
                self.passed_over(key, str(error))
            else:
                self.found(key, f"can't be made again from its parents: {in_words(error)}")
        self.missed.add(key)
        return bench.store.stored(key)


def in_words(error: Exception) -> str:
    return str(error) if isinstance(error, R3LError) else repr(error)


def key_of_call(stage: Callable[..., Any], *args: Any) -> StageKey:
    """Find the place of the stage that a call of r3l/pipeline/stages/calls.py makes."""
    arguments = signature(stage).bind(*args).arguments
    bench, shard = arguments["bench"], arguments.get("shard", arguments.get("wave") or None)
    if "round_" in arguments:
        shard = label(bench.config.rollout, arguments["shard"], arguments["round_"])
    return StageKey(bench.config.run, bench.config.branch, bench.iteration, STAGE_OF[stage], shard)


class Bench(Workbench):
    """Stages of one iteration, with what was sampled in it instead of an engine."""

    store: Witness

    def __init__(
        self,
        config: Config,
        store: Store,
        iteration: int,
        policies: Policies,
        replay: Replay,
        runner: Runner,
        tools: Tools,
    ) -> None:
        super().__init__(
            config, Witness(store.files), iteration, policies, Progress(), runner=runner, tools=tools, replay=replay
        )

    @property
    def made(self) -> dict[StageKey, Made]:
        return self.store.made

    @property
    def asks_oracle(self) -> bool:
        """Ask the oracle only where verdicts are stored: earlier versions asked none."""
        stages = {ref.stage for ref in self.store.stages(self.config.run, self.config.branch, self.iteration)}
        return super().asks_oracle and "oracle_pivots" in stages

    @property
    def settings_told(self) -> Config | None:
        """Tell of none in a replay of earlier versions, which told of none: a branch has no such row then."""
        if not self.config.branch:
            return super().settings_told
        refs = self.store.stages(self.config.run, self.config.branch, self.iteration)
        events = [event for ref in refs for event in self.store.read(ref, "events", ["event"])["event"].to_pylist()]
        return super().settings_told if "setting_changed" in events else None

    @cached_property
    def teacher(self) -> str:
        """Find it by its digest alone: the policy itself may be pruned."""
        written = own_teacher(self.config, self.store, self.line_taken, self.iteration)
        return written.policy if written else teacher_of(self.config)

    @cached_property
    def chat(self) -> ChatFormat:
        return chat_of(self.store, self.config, self.policies.start.digest, tools_of(self.world))

    def _start(self) -> Explorer:
        engine, teacher = recorded_of(self.store, self.sources(), self.config)
        try:
            pool = self.tools.pool(self.config)
        except (R3LError, OSError) as error:
            raise NotAtHand(f"the world can't be played here: {error}") from error
        behaviour = self.policies.behaviour.digest
        return Explorer(
            self.world, pool, engine, self.chat, behaviour, limits(self.config), self.progress, self.incidents, teacher
        )

    def sources(self) -> list[StageRef]:
        """List the stages of this iteration, and those that a replay takes from another line."""
        own, origin = (
            self.store.stages(self.config.run, line, self.iteration)
            for line in (self.config.branch, self.replay.source_branch if self.replay else "")
        )
        return [*own, *(ref for ref in origin if self.takes_from_store(ref.stage))]


def recorded_of(store: Store, refs: list[StageRef], config: Config) -> tuple[Recorded, RecordedTeacher]:
    """Make an engine and a teacher that answer what these stages hold; the first line's where several have it."""
    engine, teacher = Recorded(config.policy.context_tokens), RecordedTeacher("", {})
    for ref in reversed(refs):
        if ref.stage in ("base", "retries", "continuations", "evaluations"):
            engine.add_attempts(
                stage_io.records(store, ref, "trajectories", Trajectory), stage_io.records(store, ref, "turns", Turn)
            )
        elif ref.stage == "reflections":
            reflections = stage_io.records(store, ref, "reflections", Reflection)
            engine.add_reflections(reflections)
            by_teacher = [one for one in reflections if one.source == "teacher"]
            teacher.written |= {one.reflection_id: one for one in by_teacher}
            teacher.digest = next((one.policy for one in by_teacher if one.policy), teacher.digest)
    return engine, teacher


def chat_of(store: Store, config: Config, start: str, tools: Any) -> ChatFormat:
    """Load the run's chat format, from a policy that the store keeps, or from the one that it began with.

    Raises:
        NotAtHand: neither is here, or the latter is another by now.
    """
    for folder in tokenizer_folders(store, config, start):
        try:
            return ChatFormat.load(folder, config.policy.thinking, tools, light=True)
        except (ChatFormatError, ImportError):
            continue  # of an adapter, which has no tokenizer beside it; or the extra is not installed that reads one
    raise NotAtHand("the run's tokenizer is not on this machine")


def tokenizer_folders(store: Store, config: Config, start: str) -> list[Path]:
    policy_folders = [
        store.files.cache / config.run / "policies" / name / "policy"
        for name in store.files.folders(f"{config.run}/policies")
    ]
    start_folder = locate(config.policy.path)
    try:
        same_as_then = snapshot_digest(start_folder) == start
    except (R3LError, OSError):
        same_as_then = False
    return [
        folder
        for folder in (*policy_folders, *([start_folder] if same_as_then else []))
        if (folder / "tokenizer.json").is_file()
    ]


def snapshot(digest: str) -> PolicySnapshot:
    """Make a policy that is known by its digest alone."""
    return PolicySnapshot("", digest)
