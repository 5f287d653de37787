"""Demonstrations for the warm start of a small policy in the household world: attempts, reports on them, guided
retries.

The demonstrator searches well and is confidently wrong: it mostly leaves out what has to be done to a thing before it
is brought.
"""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from r3l.environments.alfworld.errand import Errand
from r3l.environments.household.engine import HouseholdEngine, engine_of
from r3l.environments.household.game import MARKS, Game, Level, Wanted
from r3l.environments.household.generator import games
from r3l.environments.household.goal import instances, meets, on_target, over
from r3l.environments.household.reports import reflect, useful
from r3l.environments.household.solver import VERB_OF, ActionPlan
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration, DemoTurn, reply_text, worth_showing
from r3l.lab.warm_start.alfworld.reports import with_mistakes
from r3l.lab.warm_start.household.player import Player
from r3l.records import Task
from r3l.system.seeds import derive

PATIENCE = (1, 2, 3, 50)  # idle turns until an attempt that believes it is done is broken off


@dataclass(frozen=True, slots=True)
class HouseholdHabits:
    """Shares in [0, 1]: how the demonstrator plays, and so what the warm start teaches."""

    forgets: float = 0.92  # each treatment that is asked for
    forgets_later: float = 0.0  # added to it for each thing of several of a kind that was brought before
    stray_action: float = 0.05  # random actions, never trained on, so that recovery is
    wrong_reflection: float = 0.15
    follow_guidance: float = 0.95
    short_search: float = (
        0.6  # the search begins within three places of what it looks for: the rest is soon learned, and long
    )
    max_turns: int = 16
    forgets_in_hand: bool = (
        False  # only once it holds the thing; else as it sees it, a turn before the first useless action
    )
    names_thought: bool = (
        False  # reports name the turn whose thought first leaves a treatment out, not the useless action
    )


class Demonstrator(Player):
    """A `Player` that says what it thinks: what is asked for and where it goes, then the thing at hand and all that is
    left to do to it.

    Every thought repeats the plan, so that a small model needs no long-range recall to follow it.
    """

    def __init__(self, engine: HouseholdEngine, rng: random.Random, habits: HouseholdHabits) -> None:
        super().__init__(engine, rng, habits.forgets, habits.forgets_later)
        self.forgets_in_hand = habits.forgets_in_hand
        self.leaves_out = False  # whether its last thought lacked something that is still to be done to the thing
        listing = engine.game.searched
        start = rng.randrange(len(listing))
        if rng.random() < habits.short_search:
            lies = engine.game.places[instances(engine, engine.game.wanted[0])[0]]
            start = (listing.index(lies) - rng.randrange(3)) % len(listing)
        self.order = [*listing[start:], *listing[:start]]

    def think_and_act(self) -> tuple[str, str]:
        plans = [(ActionPlan(self.engine, self.state).deliver((errand,)), errand) for errand in self.errands()]
        if plans:
            actions, (index, wanted) = min(plans, key=lambda plan: len(plan[0]))
            thing, left = self.engine.game.objects[index], self.missing(index, wanted)
            true = next(one for one in self.engine.game.wanted if one.kind == wanted.kind)
            self.leaves_out = left != self.missing(index, true)
            if self.forgets_in_hand and index != self.state.held:
                thing, left, self.leaves_out = " ".join([*true.conditions, thing]), [], False
            return f"{thing}: {', '.join([*left, self.engine.game.target])}.", actions[0]
        self.leaves_out = False
        errands_left = [
            " ".join([*asked.conditions, asked.kind])
            for asked, wanted in zip(self.engine.game.wanted, self.wanted, strict=True)
            if not self.delivered(wanted)
        ]
        return (
            (f"find {', '.join(errands_left)}: {self.engine.game.target}.", self.search())
            if errands_left
            else ("done.", "look")
        )

    def missing(self, index: int, wanted: Wanted) -> list[str]:
        """List the verbs that an object still needs, as it believes."""
        left = wanted.marks & ~self.state.marks[index]
        return [
            *(["slice"] if left & MARKS["sliced"] else []),
            *(verb for bit, (verb, _) in VERB_OF.items() if left & bit),
        ]

    def delivered(self, wanted: Wanted) -> bool:
        there = [
            i
            for i in instances(self.engine, wanted)
            if on_target(self.engine, self.state, i) and meets(self.state.marks[i], wanted)
        ]
        return len(there) >= wanted.count

    def heed(self, advice: str) -> None:
        """Bring back to mind what is asked for of the things that the advice names."""
        self.forgets = self.forgets_later = 0.0
        words = advice.replace(",", " ").split()
        self.wanted = [
            true if true.kind in words else mine
            for mine, true in zip(self.wanted, self.engine.game.wanted, strict=True)
        ]


class Play:
    """One episode with a demonstrator in it."""

    def __init__(self, game: Game, habits: HouseholdHabits, rng: random.Random) -> None:
        self.engine, self.habits, self.rng = engine_of(game.to_json()), habits, rng
        self.player = Demonstrator(self.engine, rng, habits)
        self.turns: list[DemoTurn] = []
        self.left_out: list[bool] = []  # of each turn: whether its thought did
        self.text = self.engine.opening()

    def take(self, turn: DemoTurn) -> None:
        self.turns.append(replace(turn, observation=self.text))
        state, self.text = self.engine.step(self.player.state, turn.action)
        self.player.observe(state)

    def to_the_end(self) -> None:
        patience = self.rng.choice(PATIENCE)
        while not self.over and len(self.turns) < self.habits.max_turns and patience > 0:
            thought, action = self.player.think_and_act()
            patience -= thought == "done."
            stray = self.rng.random() < self.habits.stray_action
            self.left_out.append(self.player.leaves_out)
            self.take(DemoTurn("", reply_text(thought, action), self.stray() if stray else action, stray))

    def stray(self) -> str:
        """Choose an action that loses nothing."""
        name = self.rng.choice(self.engine.game.receptacles)
        return self.rng.choice((f"go to {name}", f"open {name}", "look", "inventory"))

    @property
    def over(self) -> bool:
        return over(self.engine, self.player.state)

    @property
    def won(self) -> bool:
        return all(self.player.delivered(wanted) for wanted in self.engine.game.wanted)


def demonstrate(game: Game, habits: HouseholdHabits, rng: random.Random) -> Demonstration:
    """Play an attempt, write the report on it, and retry from the report's turn where it failed."""
    base = Play(game, habits, rng)
    base.to_the_end()
    task = Task(0, 0, "demonstration", "household", "train", game.task_type, game.to_json(), 0)
    true = reflect(task, actions := [turn.action for turn in base.turns])
    if habits.names_thought:
        true = from_the_thought(true, actions, base.left_out)
    report, helps = with_mistakes(true, len(base.turns), rng, habits.wrong_reflection)
    wanted = game.wanted[0]
    demonstration = Demonstration(
        Errand(game.task_type, wanted.kind, game.target), base.turns, base.text, base.won, report
    )
    if not base.won and report["trajectory_outcome"] == "failure":
        again = Play(game, habits, rng)
        for turn in base.turns[: report["retry_from_step"]]:
            again.take(turn)
        if helps and rng.random() < habits.follow_guidance:
            again.player.heed(report["improvement_suggestion"])
        again.to_the_end()
        demonstration.retry, demonstration.retry_won = again.turns[report["retry_from_step"] :], again.won
    return demonstration


def from_the_thought(report: dict[str, Any], actions: Sequence[str], left_out: Sequence[bool]) -> dict[str, Any]:
    """Move the report to the first turn of the thoughts, one after another up to the useless action, that left
    something out: the turn where the issue first showed (paper, reflection prompt). Reports on what can't be undone
    stay as they are."""
    pivot = first = report["retry_from_step"]
    while first > 0 and left_out[first - 1]:
        first -= 1
    if first == pivot or useful(actions, pivot) not in report["trajectory_summary"]:
        return report
    summary = report["trajectory_summary"].replace(useful(actions, pivot), useful(actions, first))
    return {**report, "trajectory_summary": summary, "retry_from_step": first}


def demonstrations(
    level: Level, seed: int, number: int, habits: HouseholdHabits, task_types: Collection[str] = (), at_most: int = 0
) -> Iterator[Demonstration]:
    """Yield `number` demonstrations on games of a stream of their own, of these types (none: all); those where much was
    refused are left out.

    With `at_most`, 1 to so many of the things of a kind are asked for, in turn.
    """
    stream = (
        game
        for game in games(level, "train", derive(seed, "household demonstrations"))
        if not task_types or game.task_type in task_types
    )
    for index, game in enumerate(islice(stream, number)):
        own_game = with_fewer(game, 1 + index % at_most) if at_most else game
        demonstration = demonstrate(own_game, habits, random.Random(derive(seed, "household demonstration", index)))
        if worth_showing(demonstration):
            yield demonstration


def with_fewer(game: Game, number: int) -> Game:
    return replace(game, wanted=tuple(replace(one, count=min(one.count, number)) for one in game.wanted))
