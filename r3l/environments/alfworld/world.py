"""ALFWorld's text world on its own engine: 25 turns, reward 1 if won, the paper's system prompt (paper, Experimental
Setup)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from r3l.config.environments import AlfworldSettings
from r3l.environments.alfworld.errand import KNOWN, Errand, SubGoals
from r3l.environments.alfworld.game_files import (
    DOWNLOADED,
    OnGames,
    games_root,
    list_games,
    part_of,
    prepare_games,
    read_trajectory,
)
from r3l.environments.alfworld.parsing import memoised_parsing
from r3l.environments.base import Benchmark, Environment, Observation, Step, Verdict
from r3l.environments.household.goal import VAGUE
from r3l.environments.replies import TaggedWorld
from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.seeds import derive

if TYPE_CHECKING:
    from r3l.environments.alfworld.engine import GameEngine, Seen, Snapshot

LOADED_GAMES = 32  # a worker's; about 6 MB each
NOT_UNDERSTOOD = "Nothing happens."


class AlfworldWorld(TaggedWorld[AlfworldSettings]):
    """The world. It is cheap: it loads neither alfworld nor textworld until games are made or played."""

    name = "alfworld"
    packages = ("alfworld", "textworld")
    benchmarks: ClassVar = {
        "alfworld": Benchmark({"games": "downloaded"}, "valid_seen", 140),
        "alfworld-unseen": Benchmark({"games": "downloaded"}, "valid_unseen", 134),
        "alfworld-kitchen": Benchmark({"games": "kitchen"}, "heldout"),
        "alfworld-full": Benchmark({"games": "full"}, "heldout"),
    }
    prepare = staticmethod(prepare_games)

    Settings = AlfworldSettings

    def tasks(self, split: str, progress: OnGames | None = None) -> list[Task]:
        """Make the generated games that are missing; `progress` gets (games done, all games)."""
        seeds = self.settings.games_seed, self.name, self.settings.games
        return [
            self.task(split, game.name, game.task_type, {"game": game.path}, derive(*seeds, split, game.name))
            for game in list_games(self.settings, split, progress)
        ]

    def data(self, split: str) -> str:
        """Name the size of the rooms, or which part of the downloaded games."""
        settings = self.settings
        if settings.games != "downloaded":
            return f"{settings.games}-{settings.games_seed}"
        return f"{DOWNLOADED}, {part_of(settings, split)}" if settings.partial else DOWNLOADED

    def oracle_pivot(self, task: Task, actions: Sequence[str], observations: Sequence[str]) -> Verdict:
        """Judge by the recorded turns: after the last thing that was seen, taken or treated as the errand asks."""
        from r3l.environments.alfworld.errand import KNOWN, Errand
        from r3l.environments.alfworld.oracle import Record, failure_report

        about = read_trajectory(games_root(self.settings), task)["pddl_params"]
        if task.task_type not in KNOWN or about.get("object_sliced"):
            return Verdict(None, "unknown errand")
        report = failure_report(Record(Errand.of(task.task_type, about), list(observations), list(actions), won=False))
        cause = str(report["root_cause_analysis"])
        return Verdict(int(report["retry_from_step"]), cause, cause, str(report["improvement_suggestion"]))

    def hints(self, task: Task) -> Sequence[str]:
        root = games_root(self.settings)
        about = read_trajectory(root, task)["pddl_params"]
        return hints(task.task_type, about, root / str(json.loads(task.payload)["game"]))

    def make(self) -> Environment:
        # the first time this takes seconds, which a worker spends before it reports that it is ready
        import_module("textworld.envs")
        import_module("alfworld.agents.environment.alfred_tw_env")
        return AlfworldEnvironment(games_root(self.settings), self.settings.admissible)


@dataclass(frozen=True, slots=True)
class Handle:
    """A state of one loaded game."""

    engine: GameEngine
    snapshot: Snapshot
    sub_goals: SubGoals


@lru_cache(maxsize=LOADED_GAMES)
def game_at(path: Path) -> GameEngine:
    """Load a game, shared by all its episodes in a process: each remembers its own state."""
    from r3l.environments.alfworld.engine import GameEngine

    return GameEngine(path)


@lru_cache(maxsize=LOADED_GAMES)
def sub_goals_of(root: Path, task: Task) -> SubGoals:
    """Read a task's sub-goals, shared by all its episodes in a process."""
    return SubGoals.of(task.task_type, read_trajectory(root, task)["pddl_params"])


class AlfworldEnvironment:
    """One episode. Several may share a loaded game, so each puts its own state back before it steps."""

    def __init__(self, root: Path, list_admissible: bool) -> None:
        self.root, self.list_admissible = root, list_admissible
        self.at: Handle | None = None

    def reset(self, task: Task) -> Observation:
        path = self.root / str(json.loads(task.payload)["game"])
        if not path.is_file():
            raise WorldError(f"task {task.task_id}: no game at {path}; run `r3l prepare alfworld`")
        with memoised_parsing():
            engine = game_at(path)
            first = engine.reset()
        self.at = Handle(engine, engine.start, sub_goals_of(self.root, task))
        return self.observation(first)

    def step(self, action: str) -> Step:
        if self.at is None:
            raise WorldError("step before reset")
        engine, sub_goals = self.at.engine, self.at.sub_goals
        with memoised_parsing():
            engine.restore(self.at.snapshot)
            answer = engine.step(action)
        self.at = Handle(engine, engine.snapshot(), sub_goals)
        return Step(
            self.observation(answer),
            done=answer.won,
            reward=float(answer.won),
            success=answer.won,
            accepted=answer.text != NOT_UNDERSTOOD,
            progress=sub_goals.share(engine.facts(), answer.won),
        )

    def observation(self, seen: Seen) -> Observation:
        text = (
            f"{seen.text}\n\nAdmissible commands: {', '.join(seen.admissible)}" if self.list_admissible else seen.text
        )
        return Observation(text, seen.admissible)

    def snapshot(self) -> Handle | None:
        return self.at

    def restore(self, handle: object) -> None:
        if not isinstance(handle, Handle):
            raise WorldError(f"restore needs a handle of snapshot(), got {type(handle).__name__}")
        self.at = handle

    def close(self) -> None:
        self.at = None


def hints(task_type: str, about: Mapping[str, Any], game_file: Path) -> Sequence[str]:
    """Write three hints, of which the first one is the same for all errands and the last one says where the object lies
    at the start; the first alone for other kinds of tasks. `about`: the game's `pddl_params`."""
    if task_type not in KNOWN or about.get("object_sliced"):
        return [VAGUE]
    errand = Errand.of(task_type, about)
    treatment = f", {errand.treatment[0]} it with a {errand.treatment[1]}" if errand.treatment else ""
    plan = f"You need to find a {errand.target}{treatment}, and bring it to a {errand.parent}."
    places = lying(about["object_target"], json.loads(game_file.read_text())["pddl_problem"])
    return (
        [VAGUE, plan, f"{plan} At the start, there is one in or on a {' and a '.join(places)}."]
        if places
        else [VAGUE, plan]
    )


def lying(target: str, problem: str) -> list[str]:
    """List the kinds of receptacles in or on which objects of a kind lie at the start."""
    kinds = re.findall(rf"\(inReceptacle {target}_bar\S* (\w+?)_bar", problem)
    return sorted({kind.lower() for kind in kinds})
