"""What holds after any actions whatever in the household world."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from r3l.environments.household.engine import HAND, NOTHING, HouseholdEngine
from r3l.environments.household.generator import first_games
from r3l.environments.household.goal import is_won, over, progress, winnable
from r3l.environments.household.oracle import oracle_pivot
from r3l.environments.household.solver import solve
from r3l.records import Task

GAMES = [game for level in ("short", "easy", "standard", "long") for game in first_games(level, "train", 7, 20)]


def any_action(engine: HouseholdEngine, rng: random.Random) -> str:
    """Mostly something that is possible somewhere, now and then nonsense."""
    thing, knife = rng.choice(engine.game.objects), rng.choice(engine.game.objects)
    place = rng.choice(engine.game.receptacles)
    return rng.choice(
        [
            f"go to {place}", f"go to {place}", f"open {place}", f"close {place}", f"take {thing} from {place}",
            f"move {thing} to {place}", f"heat {thing} with {place}", f"cool {thing} with {place}",
            f"clean {thing} with {place}", f"slice {thing} with {knife}", f"examine {thing}", "look", "inventory", "",
            "take", "go to", f"move {place} to {thing}",
        ]
    )  # fmt: skip


def walk(number: int, seed: int, steps: int) -> tuple[HouseholdEngine, list, list[str]]:
    """States and actions: those of the solver, those that fit where the agent stands and what it holds, and any
    others."""
    engine, rng = HouseholdEngine(GAMES[number]), random.Random(seed)
    states, actions = [engine.first], []
    while len(actions) < steps and not over(engine, states[-1]):
        state = states[-1]
        here = engine.game.receptacles[state.at] if state.at >= 0 else engine.game.receptacles[0]
        inside = [name for name, place in zip(engine.game.objects, state.places, strict=True) if place == state.at]
        held = engine.game.objects[state.held] if state.held != HAND else ""
        fitting = (
            [f"open {here}", *(f"take {name} from {here}" for name in inside)]
            if not held
            else [
                f"{verb} {held} {word} {here}"
                for verb, word in (("move", "to"), ("heat", "with"), ("cool", "with"), ("clean", "with"))
            ]
        )
        choices = [
            any_action(engine, rng),
            rng.choice(fitting),
            *(solve(engine, state)[:1] * 4 if winnable(engine, state) else []),
        ]
        actions.append(rng.choice(choices))
        states.append(engine.step(state, actions[-1])[0])
    return engine, states, actions


WALKS = {"number": st.integers(0, len(GAMES) - 1), "seed": st.integers(0, 10**6), "steps": st.integers(1, 80)}


@settings(max_examples=150, deadline=None)
@given(**WALKS)
def test_states_are_consistent_and_what_is_lost_stays_lost(number, seed, steps):
    engine, states, actions = walk(number, seed, steps)
    alive = True
    for before, action, after in zip(states, actions, states[1:], strict=False):
        assert [i for i, place in enumerate(after.places) if place == HAND] == (
            [after.held] if after.held != HAND else []
        )
        assert len(after.places) == len(after.marks) == len(engine.game.objects)
        assert all(
            old & mark == old or not engine.game.strict for old, mark in zip(before.marks, after.marks, strict=True)
        )
        assert 0.0 <= progress(engine, after) <= 1.0
        assert is_won(engine, after) == (progress(engine, after) == 1.0)
        assert (engine.step(before, action)[1] == NOTHING) <= (before == after)
        assert winnable(engine, after) <= alive
        assert is_won(engine, after) <= winnable(engine, after)
        alive = winnable(engine, after)


@settings(max_examples=60, deadline=None)
@given(**WALKS)
def test_the_same_actions_from_any_snapshot_give_the_same_states(number, seed, steps):
    engine, states, actions = walk(number, seed, steps)
    for start in range(0, len(actions), 7):
        state = states[start]
        for action, expected in zip(actions[start:], states[start + 1 :], strict=True):
            state, _ = engine.step(state, action)
            assert state == expected


@settings(max_examples=60, deadline=None)
@given(**WALKS)
def test_the_oracle_names_a_turn_that_was_played_and_the_prefix_before_it_can_win(number, seed, steps):
    engine, states, actions = walk(number, seed, steps)
    task = Task(0, 0, "x", "household", "train", "t", engine.game.to_json(), 0)
    verdict = oracle_pivot(task, actions)
    assert (verdict.why == "won") == is_won(engine, states[-1])
    if verdict.pivot is not None:
        assert 0 <= verdict.pivot < len(actions)
        assert winnable(engine, states[verdict.pivot])
        assert (verdict.why == "lost") == (not winnable(engine, states[-1]))
