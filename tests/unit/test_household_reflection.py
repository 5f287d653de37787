"""Reports of the perfect reflector: the paper's keys, the oracle's pivot, and advice that wins when it is followed."""

import json
import random

import pytest

from r3l.environments.household.engine import HouseholdEngine
from r3l.environments.household.game import Game, Wanted
from r3l.environments.household.generator import first_games
from r3l.environments.household.goal import is_won
from r3l.environments.household.oracle import oracle_pivot, replay
from r3l.environments.household.reports import reflect
from r3l.exploration.report import parse_report
from r3l.lab.warm_start.household.player import play
from r3l.records import Task

PLACES = ("cabinet 1", "countertop 1", "fridge 1", "microwave 1", "sinkbasin 1", "garbagecan 1", "box 1")
GAME = Game(
    "long", "t", PLACES, ("cup 1", "knife 1", "mug 1", "tomato 1"), (1, 1, 0, 1),
    (Wanted("mug", ("clean", "hot")), Wanted("tomato", ())), "box",
)  # fmt: skip
FETCH = ["go to cabinet 1", "open cabinet 1", "take mug 1 from cabinet 1"]
HEAT, CLEAN = (
    ["go to microwave 1", "heat mug 1 with microwave 1"],
    ["go to sinkbasin 1", "clean mug 1 with sinkbasin 1"],
)


def task(game: Game = GAME) -> Task:
    return Task(0, 0, "household/x", "household", "train", "t", game.to_json(), 0)


@pytest.mark.parametrize(("actions", "pivot", "cause", "advice"), [
    (
        [*FETCH, *HEAT, "go to box 1", "move mug 1 to box 1"],
        6,
        "mug 1 was moved too early.",
        "First clean mug 1 with sinkbasin 1, then move mug 1 to box 1.",
    ),
    (
        [*FETCH, "go to box 1", "move mug 1 to box 1"],
        4,
        "mug 1 was moved too early.",
        "First clean mug 1 with sinkbasin 1 and heat mug 1 with microwave 1, then move mug 1 to box 1.",
    ),
    (
        [*FETCH, "go to fridge 1", "cool mug 1 with fridge 1", "look"],
        4,
        "mug 1 was to be clean and hot.",
        "Do not cool mug 1.",
    ),
    (
        [*FETCH, "go to garbagecan 1", "move mug 1 to garbagecan 1"],
        4,
        "mug 1 can't be taken out of the garbagecan.",
        "Do not move mug 1 to the garbagecan.",
    ),
    (
        ["go to countertop 1", "take knife 1 from countertop 1", "slice tomato 1 with knife 1"],
        2,
        "tomato 1 is asked for whole.",
        "Do not slice tomato 1.",
    ),
    (
        ["go to countertop 1", "take cup 1 from countertop 1", "go to box 1", "move cup 1 to box 1"],
        3,
        "cup 1 can't be taken out of the box.",
        "Do not move cup 1 to the box.",
    ),
    (
        [*FETCH, *HEAT, "look", "look"],
        5,
        "mug 1 is not clean.",
        "Clean mug 1 with sinkbasin 1, then move mug 1 to box 1.",
    ),
    (
        ["go to countertop 1", "look", "look"],
        1,
        "No mug was found.",
        "Look for mug in every place that was not looked into.",
    ),
    (
        [*FETCH[:2], "look"],
        2,
        "mug 1 is not clean and hot.",
        "Take mug 1 from cabinet 1, then clean mug 1 with sinkbasin 1, then heat mug 1 with microwave 1, then "
        "move mug 1 to box 1.",
    ),
])  # fmt: skip
def test_failures_are_diagnosed_as_by_hand(actions, pivot, cause, advice):
    found = reflect(task(), actions)
    assert (found["trajectory_outcome"], found["retry_from_step"]) == ("failure", pivot)
    assert (found["root_cause_analysis"], found["improvement_suggestion"]) == (cause, advice)


def test_the_summary_names_the_task_and_the_last_useful_turn():
    summary = reflect(task(), [*FETCH, *HEAT, "look", "look"])["trajectory_summary"]
    assert (
        summary
        == "Asked: put a clean hot mug, and a tomato in box. Of use until heat mug 1 with microwave 1 at turn 4."
    )
    assert reflect(task(), ["look"])["trajectory_summary"].endswith("Nothing was of use.")


def test_successes_are_judged_as_by_hand():
    rest = [
        "go to box 1", "move mug 1 to box 1", "go to countertop 1", "take tomato 1 from countertop 1", "go to box 1",
        "move tomato 1 to box 1",
    ]  # fmt: skip
    assert reflect(task(), [*FETCH, *HEAT, *CLEAN, *rest])["trajectory_outcome"] == "success"
    slow = reflect(task(), [*FETCH, "look", "inventory", "", "look", *HEAT, *CLEAN, *rest])
    assert (slow["trajectory_outcome"], slow["retry_from_step"]) == ("success_but_inefficient", 3)


@pytest.mark.parametrize("level", ["short", "easy", "standard", "long"])
def test_reports_on_careless_players_are_valid_and_name_the_oracles_pivot(level):
    outcomes = set()
    for number, game in enumerate(first_games(level, "train", 4, 40)):
        engine = HouseholdEngine(game)
        actions = play(engine, random.Random(number), 40, forgets=0.4)
        found = parse_report(json.dumps(reflect(task(game), actions)), len(actions))
        outcomes.add(found.outcome)
        assert (found.outcome == "failure") != is_won(engine, replay(engine, actions)[0][-1])
        assert found.outcome != "failure" or found.pivot == oracle_pivot(task(game), actions).pivot
    assert outcomes >= {"success", "failure"}
