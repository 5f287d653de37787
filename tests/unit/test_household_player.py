"""The player that knows only what it has seen: it wins in time, and what it forgets is what the oracle names."""

import random

import pytest

from r3l.environments.household.engine import NOTHING, HouseholdEngine, State
from r3l.environments.household.generator import first_games
from r3l.environments.household.goal import is_won, winnable
from r3l.environments.household.oracle import oracle_pivot
from r3l.lab.warm_start.household.player import play
from r3l.records import Task

TURNS = {"short": 8, "easy": 25, "standard": 30, "long": 50}


def end(engine: HouseholdEngine, actions: list[str]) -> State:
    state = engine.first
    for action in actions:
        state, text = engine.step(state, action)
        assert text != NOTHING
    return state


@pytest.mark.parametrize("level", TURNS)
def test_it_wins_every_task_with_no_action_in_vain(level):
    for number, game in enumerate(first_games(level, "heldout", 1, 40)):
        engine = HouseholdEngine(game)
        actions = play(engine, random.Random(number), TURNS[level])
        assert is_won(engine, end(engine, actions))


@pytest.mark.parametrize("level", TURNS)
def test_it_takes_only_what_it_has_seen(level):
    """Every object is taken from a place whose contents were on view before."""
    for number, game in enumerate(first_games(level, "heldout", 2, 20)):
        engine = HouseholdEngine(game)
        state, shown = engine.first, ""
        for action in play(engine, random.Random(number), TURNS[level]):
            if action.startswith("take"):
                assert f"a {' '.join(action.split()[1:3])}" in shown
            state, text = engine.step(state, action)
            shown += text


def test_what_it_forgets_loses_late_and_the_oracle_names_the_turn():
    pivots = []
    for number, game in enumerate(first_games("long", "heldout", 1, 30)):
        engine = HouseholdEngine(game)
        actions = play(engine, random.Random(number), 50, forgets=0.5)
        if is_won(engine, end(engine, actions)):
            continue
        verdict = oracle_pivot(Task(0, 0, "x", "household", "heldout", "t", game.to_json(), 0), actions)
        assert verdict.why == "lost"
        assert actions[verdict.pivot].startswith("move")
        assert actions[verdict.pivot].endswith("box 1")
        assert winnable(engine, end(engine, actions[: verdict.pivot]))
        pivots.append(verdict.pivot)
    assert len(pivots) >= 20
    assert max(pivots) >= 20


def test_the_same_seed_plays_the_same_and_another_does_not():
    engine = HouseholdEngine(first_games("long", "train", 0, 1)[0])
    assert play(engine, random.Random(1), 50) == play(engine, random.Random(1), 50)
    assert len({tuple(play(engine, random.Random(seed), 50)) for seed in range(5)}) > 1
