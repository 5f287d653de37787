"""Demonstrations for the warm start of a small policy: attempts, reflections on them and guided retries, on the real
engine.

What they teach is good but confidently wrong in part: most attempts skip the heating, cooling or cleaning.
"""

import os
import random
import tempfile
import threading
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path

from r3l.environments.alfworld.engine import GameEngine, Seen
from r3l.environments.alfworld.errand import Errand, kind, receptacles_in
from r3l.environments.alfworld.game_files import write_game
from r3l.environments.alfworld.games import generate_game
from r3l.environments.alfworld.oracle import Record, Report
from r3l.environments.alfworld.parsing import memoised_parsing
from r3l.environments.alfworld.rooms import affordances
from r3l.lab.warm_start.alfworld.reports import reflect, with_mistakes
from r3l.lab.warm_start.alfworld.searcher import Searcher
from r3l.system.seeds import derive

HARMLESS = ("go", "open", "close", "look", "inventory", "examine")
PATIENCE = (1, 1, 2, 2, 3, 4, 6, 25, 25, 25)  # idle turns until an attempt that believes it is done is broken off


@dataclass(frozen=True, slots=True)
class Habits:
    """Shares in [0, 1]: how the demonstrator plays, and so what the warm start teaches."""

    skip_treatment: float = 0.86
    stray_action: float = 0.05  # random actions, never trained on, so that recovery is
    mistaken_take: float = 0.03  # takes of what is not there, never trained on either: the search goes on after them
    wrong_reflection: float = 0.15
    follow_guidance: float = 0.95
    max_turns: int = 25


@dataclass(slots=True)
class DemoTurn:
    observation: str
    reply: str
    action: str
    stray: bool


@dataclass(slots=True)
class Demonstration:
    """An attempt, the report on it, and (where it failed) the retry's turns from the report's pivot on."""

    errand: Errand
    turns: list[DemoTurn]
    final: str
    won: bool
    report: Report
    retry: list[DemoTurn] = field(default_factory=list)
    retry_won: bool = False


def worth_showing(demonstration: Demonstration) -> bool:
    """Tell whether to keep the demonstration. Those with many refused actions would teach to continue regardless."""
    return sum(turn.observation.startswith("Nothing happens") for turn in demonstration.turns) <= 3


def reply_text(thought: str, action: str) -> str:
    return f"<think>{thought}</think><action>{action}</action>"


class Play:
    """One game with a searcher in it."""

    def __init__(self, engine: GameEngine, errand: Errand, skip: bool, habits: Habits, rng: random.Random) -> None:
        self.engine, self.habits, self.rng = engine, habits, rng
        self.now: Seen = engine.reset()
        self.turns: list[DemoTurn] = []
        self.searcher = Searcher(errand, receptacles_in(self.now.text), rng, skip)

    def take(self, reply: str, action: str, stray: bool) -> None:
        self.turns.append(DemoTurn(self.now.text, reply, action, stray))
        self.now = self.engine.step(action)
        self.searcher.observe(self.now.text)

    def to_the_end(self, patience: int) -> None:
        idle = 0
        while not self.now.won and len(self.turns) < self.habits.max_turns and idle < patience:
            thought, action = self.searcher.act()
            idle += thought.endswith("done.")
            stray = self.rng.random() < self.habits.stray_action
            if stray:
                action = self.rng.choice([command for command in self.now.admissible if command.split()[0] in HARMLESS])
            elif self.may_mistake() and self.rng.random() < self.habits.mistaken_take:
                thought, action, stray = *self.mistaken(), True
            self.take(reply_text(thought, action), action, stray)

    def may_mistake(self) -> bool:
        return self.searcher.here in self.searcher.contents and not self.searcher.holding

    def mistaken(self) -> tuple[str, str]:
        """Invent the belief that something is here which is nowhere among what was seen."""
        seen_kinds = {kind(name) for names in self.searcher.contents.values() for name in names}
        name = f"{self.rng.choice(sorted({item.lower() for item in affordances().portable} - seen_kinds))} 1"
        return f"{self.searcher.errand.plan}: yes, {name}.", f"take {name} from {self.searcher.here}"

    def record(self) -> Record:
        texts = [turn.observation for turn in self.turns] + [self.now.text]
        return Record(self.searcher.errand, texts, [turn.action for turn in self.turns], self.now.won)


def demonstrate(engine: GameEngine, errand: Errand, habits: Habits, rng: random.Random) -> Demonstration:
    base = Play(engine, errand, rng.random() < habits.skip_treatment, habits, rng)
    base.to_the_end(rng.choice(PATIENCE))
    report, helps = with_mistakes(reflect(base.record()), len(base.turns), rng, habits.wrong_reflection)
    demonstration = Demonstration(errand, base.turns, base.now.text, base.now.won, report)
    if not base.now.won and report["trajectory_outcome"] == "failure":
        forgets = 1 - habits.follow_guidance if helps else habits.skip_treatment
        again = Play(engine, errand, rng.random() < forgets, habits, rng)
        for turn in base.turns[: report["retry_from_step"]]:
            again.take(turn.reply, turn.action, turn.stray)
        again.to_the_end(rng.choice((1, 1, 2, 3)))
        demonstration.retry, demonstration.retry_won = again.turns[report["retry_from_step"] :], again.now.won
    return demonstration


def demonstrate_game(seed: int, index: int, episodes: int, habits: Habits) -> list[Demonstration]:
    """Play `episodes` demonstrations on one generated kitchen game. Runs in a worker process."""
    game = generate_game("kitchen", seed, "demonstrations", index)
    errand = Errand(game.goal.task_type, game.goal.target.lower(), game.goal.parent.lower())
    rng = random.Random(derive(seed, "demonstrations", index))
    with tempfile.TemporaryDirectory() as folder, memoised_parsing():
        engine = GameEngine(write_game(game, Path(folder)))
        return [demonstrate(engine, errand, habits, rng) for _ in range(episodes)]


def end_with_parent() -> None:
    """End the worker if its parent is killed; otherwise it would wait for work forever."""

    def wait_for_the_end() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()


def demonstrations(
    seed: int, games: int, episodes: int, workers: int, habits: Habits
) -> Generator[list[Demonstration]]:
    """Yield game by game, in their order; what comes does not depend on `workers`. Closing it early drops the games not
    begun."""
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=end_with_parent)
    try:
        calls = [pool.submit(demonstrate_game, seed, index, episodes, habits) for index in range(games)]
        for call in calls:
            yield call.result()
    finally:
        pool.shutdown(cancel_futures=True)
