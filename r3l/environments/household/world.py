"""The household world: ALFWorld's commands and phrases in pure Python, with a level whose late errors can't be undone.

Levels: short (6 places, 4 or 6 turns, no doors to open and a short prompt, for small language models), easy (7 places,
4 to 8 turns), standard (14 places, two objects at times), long (three or four treated things for a box, 20 turns and
more). On long, a second change of temperature ruins a thing, and the box and the garbage can keep what they get.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import ClassVar

from r3l.config.environments import HouseholdSettings
from r3l.environments.base import (
    Benchmark,
    DataPlan,
    Environment,
    Observation,
    OnProgress,
    Step,
    Verdict,
    numbered_tasks,
    tasks_asked,
)
from r3l.environments.household.engine import NOTHING, HouseholdEngine, State, engine_of
from r3l.environments.household.generator import SPLITS, first_games
from r3l.environments.household.goal import hints, progress, winnable
from r3l.environments.household.oracle import oracle_pivot
from r3l.environments.household.reports import reflect
from r3l.environments.replies import TaggedWorld, prompt_text
from r3l.errors import WorldError
from r3l.records import Task


class HouseholdWorld(TaggedWorld[HouseholdSettings]):
    name = "household"
    benchmarks: ClassVar = {
        f"household-{level}": Benchmark({"level": level}, "heldout") for level in ("easy", "standard", "long")
    }

    Settings = HouseholdSettings

    def system_prompt(self) -> str:
        level = self.settings.level
        names = {"short": ["household_short"], "long": ["household", "household_long"]}.get(level, ["household"])
        text = "\n".join(prompt_text(name) for name in names)
        return Template(text).substitute(max_turns=self.settings.max_turns)

    def tasks(self, split: str) -> list[Task]:
        level, seed = self.settings.level, self.settings.tasks_seed
        games = first_games(level, split, seed, tasks_asked(self.name, split, self.settings))
        contents = ((game.task_type, game.to_json()) for game in games)
        return numbered_tasks(self.name, f"household/{level}-{seed}/{split}", split, seed, contents)

    def data(self, split: str) -> str:
        return f"{self.settings.level}-{self.settings.tasks_seed}"

    @staticmethod
    def prepare(
        settings: HouseholdSettings, root: Path, download: bool, progress: OnProgress, wanted: Sequence[str]
    ) -> DataPlan:
        """Prepare nothing: the games are drawn by seed."""
        return DataPlan(f"{settings.level}-{settings.tasks_seed}", SPLITS)

    def oracle_pivot(self, task: Task, actions: Sequence[str], observations: Sequence[str]) -> Verdict:
        verdict = oracle_pivot(task, actions)
        if verdict.pivot is None:
            return verdict
        report = reflect(task, actions, verdict)
        return replace(verdict, cause=report["root_cause_analysis"], advice=report["improvement_suggestion"])

    def hints(self, task: Task) -> list[str]:
        return hints(engine_of(task.payload))

    def make(self) -> Environment:
        return HouseholdEnvironment(end_when_lost=self.settings.end_when_lost)


class HouseholdEnvironment:
    """One episode. A snapshot is the state itself: it is never changed in place."""

    def __init__(self, end_when_lost: bool = False) -> None:
        self.end_when_lost = end_when_lost
        self.engine: HouseholdEngine | None = None
        self.state: State | None = None
        self.share: float | None = None  # progress, where it is known

    def reset(self, task: Task) -> Observation:
        self.engine = engine_of(task.payload)
        self.state, self.share = self.engine.first, None
        return Observation(self.engine.opening())

    def step(self, action: str) -> Step:
        if self.engine is None or self.state is None:
            raise WorldError("household: step before reset")
        engine, before = self.engine, self.state
        self.state, text = engine.step(before, action)
        if self.share is None or self.state.places is not before.places or self.state.marks is not before.marks:
            self.share = progress(engine, self.state)
        success = self.share == 1.0
        done = success or engine.sealed(self.state) or (self.end_when_lost and not winnable(engine, self.state))
        return Step(Observation(text), done, float(success), success, accepted=text != NOTHING, progress=self.share)

    def snapshot(self) -> State | None:
        return self.state

    def restore(self, handle: object) -> None:
        if not isinstance(handle, State):
            raise WorldError(f"household: restore needs a handle of snapshot(), got {type(handle).__name__}")
        self.state, self.share = handle, None

    def close(self) -> None:
        self.state = None
