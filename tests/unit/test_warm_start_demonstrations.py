"""The demonstrator on the real engine: what it teaches, and what it gets wrong on purpose."""

import json
import random
from pathlib import Path

import pytest

from r3l.environments.alfworld.errand import Errand
from r3l.environments.alfworld.oracle import Record
from r3l.environments.base import report
from r3l.environments.replies import parse_tagged_reply
from r3l.exploration.report import parse_report
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration, DemoTurn, Habits, demonstrate_game, reply_text
from r3l.lab.warm_start.alfworld.renaming import object_kinds, rename_objects
from r3l.lab.warm_start.alfworld.reports import reflect, with_mistakes

ROOM = (
    "You are in the middle of a room. Looking quickly around you, you see a fridge 1, a shelf 1.\n\n"
    "Your task is to: put a cool mug in shelf."
)
COOL = Errand("pick_cool_then_place_in_recep", "mug", "shelf")
TEXTS = [
    ROOM,
    "You arrive at shelf 1. On the shelf 1, you see a mug 2.",
    "You pick up the mug 2 from the shelf 1.",
    "You move the mug 2 to the shelf 1.",
    "You are not carrying anything.",
]
ACTIONS = ["go to shelf 1", "take mug 2 from shelf 1", "move mug 2 to shelf 1", "inventory"]


def always(skip: float) -> Habits:
    return Habits(skip_treatment=skip, stray_action=0, mistaken_take=0, wrong_reflection=0, follow_guidance=1)


@pytest.mark.parametrize("index", [0, 1, 2])  # a heat, a cool and a clean task
def test_the_habit_loses_and_the_guided_retry_wins(index: int) -> None:
    (shown,) = demonstrate_game(5, index, 1, always(skip=1.0))
    assert shown.errand.treatment is not None
    assert (shown.won, shown.retry_won) == (False, True)
    assert shown.report["trajectory_outcome"] == "failure"
    verb = shown.errand.treatment[0]
    assert shown.report["improvement_suggestion"].startswith(f"Before placing, {verb} {shown.errand.target} ")
    assert not any(turn.action.startswith(verb) for turn in shown.turns)
    assert any(turn.action.startswith(verb) for turn in shown.retry)
    assert shown.retry[0].observation == shown.turns[shown.report["retry_from_step"]].observation


def test_without_the_habit_the_searcher_wins() -> None:
    (shown,) = demonstrate_game(5, 0, 1, always(skip=0.0))
    assert (shown.won, shown.report["trajectory_outcome"], shown.retry) == (True, "success", [])


def test_replies_and_reports_have_the_asked_for_formats() -> None:
    for shown in demonstrate_game(6, 1, 3, Habits()):
        assert all(parse_tagged_reply(turn.reply).action == turn.action for turn in shown.turns)
        assert parse_report(json.dumps(shown.report), len(shown.turns)).pivot == shown.report["retry_from_step"]


def test_a_mistaken_take_is_refused_and_the_search_goes_on() -> None:
    habits = Habits(skip_treatment=0, stray_action=0, mistaken_take=0.3)
    mistakes = 0
    for shown in demonstrate_game(7, 3, 8, habits):
        for turn, after in zip(shown.turns, shown.turns[1:], strict=False):
            if turn.stray:
                mistakes += 1
                assert turn.action.startswith("take ")
                assert after.observation == "Nothing happens."
                assert not after.reply.startswith(turn.reply.split("</think>")[0])
    assert mistakes > 3


def test_the_oracle_names_the_turn_after_the_take() -> None:
    found = reflect(Record(COOL, TEXTS, ACTIONS, won=False))
    assert found["retry_from_step"] == 2
    assert found["improvement_suggestion"] == "Before placing, cool mug 2 with fridge 1."
    assert found["trajectory_summary"] == "You pick up the mug 2 from the shelf 1. Turn 2 did not cool it."


def test_mistakes_are_as_often_as_asked_and_leave_a_valid_report() -> None:
    true, rng = reflect(Record(COOL, TEXTS, ACTIONS, won=False)), random.Random(0)
    made = [with_mistakes(true, 4, rng, 0.3)[0] for _ in range(2000)]
    assert sum(one != true for one in made) / 2000 == pytest.approx(0.3, abs=0.06)
    assert all(parse_report(json.dumps(one), 4) for one in made)
    shifted = next(one for one in made if one["retry_from_step"] == 1)
    assert "Turn 1 " in shifted["trajectory_summary"]
    assert with_mistakes(report("", "", "success", "", 0), 4, rng, 1.0)[1]


def test_renaming_is_the_same_everywhere() -> None:
    shown = Demonstration(
        COOL,
        [
            DemoTurn(text, reply_text("cool mug to shelf: no.", action), action, False)
            for text, action in zip(TEXTS, ACTIONS, strict=False)
        ],
        TEXTS[-1],
        False,
        reflect(Record(COOL, TEXTS, ACTIONS, won=False)),
    )
    other = rename_objects(shown, random.Random(1))
    name = other.errand.target
    assert name in object_kinds()
    assert name != "mug"
    assert other.turns[2].observation == f"You pick up the {name} 2 from the shelf 1."
    assert other.turns[2].reply == f"<think>cool {name} to shelf: no.</think><action>move {name} 2 to shelf 1</action>"
    assert other.report == reflect(
        Record(
            Errand(COOL.task_type, name, "shelf"),
            [turn.observation for turn in other.turns] + [other.final],
            [turn.action for turn in other.turns],
            won=False,
        )
    )


def test_demonstrations_are_the_same_from_the_same_seed(tmp_path: Path) -> None:
    assert demonstrate_game(9, 3, 2, Habits()) == demonstrate_game(9, 3, 2, Habits())
