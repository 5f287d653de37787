"""Demonstrations of the household world: what they show is true of the game, and what is wrong in them is what was meant to be."""

import random
from dataclasses import replace

import pytest

from r3l.environments.household import engine_of
from r3l.environments.household_demonstrations import HouseholdHabits, demonstrate, demonstrations
from r3l.environments.household_engine import NOTHING
from r3l.environments.household_generator import first_games
from r3l.environments.household_goal import won
from r3l.environments.replies import parse_tagged_reply

CAREFUL = HouseholdHabits(forgets=0.0, stray_action=0.0, wrong_reflection=0.0, max_turns=40)
FORGETFUL = HouseholdHabits(forgets=1.0, stray_action=0.0, wrong_reflection=0.0, follow_guidance=1.0, max_turns=40)


@pytest.mark.parametrize("level", ["easy", "standard"])
def test_whoever_forgets_nothing_wins(level):
    for number, game in enumerate(first_games(level, "train", 5, 12)):
        shown = demonstrate(game, CAREFUL, random.Random(number))
        assert shown.won
        assert shown.retry == []


def test_observations_and_actions_are_the_games_own():
    game = first_games("easy", "train", 5, 1)[0]
    shown = demonstrate(game, FORGETFUL, random.Random(1))
    engine = engine_of(game.to_json())
    state, text = engine.first, engine.opening()
    for turn in shown.turns:
        assert turn.observation == text
        assert parse_tagged_reply(turn.reply).action == turn.action
        state, text = engine.step(state, turn.action)
    assert shown.final == text
    assert shown.won == won(engine, state)


def test_thoughts_repeat_what_is_asked_and_forget_it_with_the_thing_in_hand():
    game = next(game for game in first_games("easy", "train", 6, 30) if game.wanted[0].conditions == ("hot",))
    kind, target = game.wanted[0].kind, game.target
    for habits, left in ((CAREFUL, f"heat, {target}"), (FORGETFUL, target)):
        replies = [turn.reply for turn in demonstrate(game, habits, random.Random(1)).turns]
        assert replies[0].startswith(f"<think>find hot {kind}: {target}.</think>")
        taking = next(number for number, reply in enumerate(replies) if "<action>take" in reply)
        assert replies[taking].startswith(f"<think>{kind} 1: {left}.</think>")
        later = [turn.reply for turn in demonstrate(game, replace(habits, forgets_in_hand=True), random.Random(1)).turns]
        assert later[taking].startswith(f"<think>hot {kind} 1: {target}.</think>")
        assert later[taking + 1] == replies[taking + 1]  # in hand, all is as above


def test_whoever_forgets_loses_treatments_and_a_heeded_report_brings_them_back():
    lost = [demonstrate(game, FORGETFUL, random.Random(number)) for number, game in enumerate(first_games("easy", "train", 6, 30))
            if game.wanted[0].conditions]
    assert lost
    assert not any(shown.won for shown in lost)
    assert all(shown.retry_won for shown in lost)
    for shown in lost:
        pivot = shown.report["retry_from_step"]
        assert shown.retry[0].observation == shown.turns[pivot].observation  # the retry begins where the report says
        assert shown.report["trajectory_outcome"] == "failure"


def test_long_tasks_are_lost_for_good_by_one_forgotten_treatment():
    lost = [demonstrate(game, FORGETFUL, random.Random(number)) for number, game in enumerate(first_games("long", "train", 6, 4))]
    assert all("can't be undone" in shown.report["trajectory_summary"] for shown in lost)
    assert all("First " in shown.report["improvement_suggestion"] for shown in lost)


def test_of_three_things_of_a_kind_each_is_forgotten_for_itself():
    shown = list(demonstrations("long", 0, 60, replace(CAREFUL, forgets=0.35, max_turns=50, follow_guidance=1.0), ["pack_three"]))
    assert {one.errand.task_type for one in shown} == {"pack_three"}
    assert "put three " in shown[0].turns[0].observation
    assert 0.1 < sum(one.won for one in shown) / len(shown) < 0.5  # (1 - .35)^3 = .27
    lost = [one for one in shown if not one.won]
    assert len({sum("<action>move" in turn.reply for turn in one.turns[:one.report["retry_from_step"]]) for one in lost}) == 3
    assert sum(one.retry_won for one in lost) > 0.9 * len(lost)  # a heeded report is not forgotten again


def test_a_stream_is_the_same_for_a_seed_and_leaves_out_what_was_refused_much():
    habits = HouseholdHabits(stray_action=0.5)
    first, again = ([(shown.turns, shown.report) for shown in demonstrations("easy", 3, 40, habits)] for _ in range(2))
    assert first == again
    assert 0 < len(first) <= 40
    assert all(sum(turn.observation == NOTHING for turn in turns) <= 3 for turns, _ in first)
    assert any(turn.stray for turns, _ in first for turn in turns)
