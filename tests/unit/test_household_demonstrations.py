"""Demonstrations of the household world: what they show is true of the game, and what is wrong in them is what was
meant to be."""

import random
from dataclasses import replace

import pytest

from r3l.environments.household.engine import NOTHING, engine_of
from r3l.environments.household.generator import first_games
from r3l.environments.household.goal import is_won
from r3l.environments.replies import parse_tagged_reply
from r3l.lab.warm_start.household.demonstrations import HouseholdHabits, demonstrate, demonstrations

CAREFUL = HouseholdHabits(forgets=0.0, stray_action=0.0, wrong_reflection=0.0, max_turns=40)
FORGETFUL = HouseholdHabits(forgets=1.0, stray_action=0.0, wrong_reflection=0.0, follow_guidance=1.0, max_turns=40)


def moved_before(shown):
    """How many things were brought before the turn that the report names."""
    return sum("<action>move" in turn.reply for turn in shown.turns[: shown.report["retry_from_step"]])


@pytest.mark.parametrize("level", ["short", "easy", "standard"])
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
    assert shown.won == is_won(engine, state)


def test_thoughts_repeat_what_is_asked_and_forget_it_with_the_thing_in_hand():
    game = next(game for game in first_games("easy", "train", 6, 30) if game.wanted[0].conditions == ("hot",))
    kind, target = game.wanted[0].kind, game.target
    for habits, left in ((CAREFUL, f"heat, {target}"), (FORGETFUL, target)):
        replies = [turn.reply for turn in demonstrate(game, habits, random.Random(1)).turns]
        assert replies[0].startswith(f"<think>find hot {kind}: {target}.</think>")
        taking = next(number for number, reply in enumerate(replies) if "<action>take" in reply)
        assert replies[taking].startswith(f"<think>{kind} 1: {left}.</think>")
        later = [
            turn.reply for turn in demonstrate(game, replace(habits, forgets_in_hand=True), random.Random(1)).turns
        ]
        assert later[taking].startswith(f"<think>hot {kind} 1: {target}.</think>")
        assert later[taking + 1] == replies[taking + 1]  # in hand, all is as above


def test_whoever_forgets_loses_treatments_and_a_heeded_report_brings_them_back():
    lost = [
        demonstrate(game, FORGETFUL, random.Random(number))
        for number, game in enumerate(first_games("easy", "train", 6, 30))
        if game.wanted[0].conditions
    ]
    assert lost
    assert not any(shown.won for shown in lost)
    assert all(shown.retry_won for shown in lost)
    for shown in lost:
        pivot = shown.report["retry_from_step"]
        assert shown.retry[0].observation == shown.turns[pivot].observation  # the retry begins where the report says
        assert shown.report["trajectory_outcome"] == "failure"


def test_a_report_may_name_the_thought_that_left_the_treatment_out():
    """The thing is seen at turn t: the thought there leaves the treatment out, and takes it. The useless action comes a
    turn later. With the thing in hand the thought is the useless action's own."""
    game = next(game for game in first_games("easy", "train", 6, 30) if game.wanted[0].conditions == ("hot",))
    named = {}
    for names_thought in (False, True):
        habits = replace(FORGETFUL, names_thought=names_thought)
        shown = demonstrate(game, habits, random.Random(1))
        taking = next(number for number, turn in enumerate(shown.turns) if turn.action.startswith("take"))
        named[names_thought] = shown.report["retry_from_step"] - taking
        before = shown.turns[shown.report["retry_from_step"] - 1].action
        assert (
            f"Of use until {before} at turn {shown.report['retry_from_step'] - 1}."
            in shown.report["trajectory_summary"]
        )
        assert shown.retry_won
        in_hand = demonstrate(game, replace(habits, forgets_in_hand=True), random.Random(1))
        assert in_hand.report["retry_from_step"] == taking + 1
    assert named == {False: 1, True: 0}


def test_long_tasks_are_lost_for_good_by_one_forgotten_treatment():
    lost = [
        demonstrate(game, FORGETFUL, random.Random(number))
        for number, game in enumerate(first_games("long", "train", 6, 4))
    ]
    assert all("can't be undone" in shown.report["trajectory_summary"] for shown in lost)
    assert all("First " in shown.report["improvement_suggestion"] for shown in lost)


def test_of_four_things_of_a_kind_each_is_forgotten_for_itself():
    shown = list(
        demonstrations("long", 0, 60, replace(CAREFUL, forgets=0.35, max_turns=50, follow_guidance=1.0), ["pack_four"])
    )
    assert {one.errand.task_type for one in shown} == {"pack_four"}
    assert "put four " in shown[0].turns[0].observation
    assert 0.05 < sum(one.won for one in shown) / len(shown) < 0.4  # (1 - .35)^4 = .18
    lost = [one for one in shown if not one.won]
    assert len({moved_before(one) for one in lost}) == 4
    assert sum(one.retry_won for one in lost) > 0.9 * len(lost)  # a heeded report is not forgotten again


def test_later_things_are_forgotten_more_often_and_the_report_names_a_late_turn():
    late = replace(
        CAREFUL, forgets_later=0.5, follow_guidance=1.0
    )  # the first never, the second in half, the third always
    lost = list(demonstrations("long", 0, 40, late, ["pack_four"]))
    assert not any(one.won for one in lost)
    assert {moved_before(one) for one in lost} == {1, 2}
    assert 10 <= sum(moved_before(one) == 1 for one in lost) <= 30
    assert sum(one.retry_won for one in lost) > 0.9 * len(lost)  # what is heeded is not forgotten later either


def test_shorter_tasks_ask_for_one_thing_and_for_two_in_turn():
    asked = [
        one.turns[0].observation.partition("put ")[2].split()[0]
        for one in demonstrations("long", 0, 6, CAREFUL, ["pack_four"], at_most=2)
    ]
    assert asked == ["a", "two"] * 3


def test_a_stream_is_the_same_for_a_seed_and_leaves_out_what_was_refused_much():
    habits = HouseholdHabits(stray_action=0.5)
    first, again = ([(shown.turns, shown.report) for shown in demonstrations("easy", 3, 40, habits)] for _ in range(2))
    assert first == again
    assert 0 < len(first) <= 40
    assert all(sum(turn.observation == NOTHING for turn in turns) <= 3 for turns, _ in first)
    assert any(turn.stray for turns, _ in first for turn in turns)
