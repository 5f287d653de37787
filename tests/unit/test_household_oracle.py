"""The solver and the oracle of the household world against an exhaustive search and hand-made episodes."""

import pytest

from r3l.environments.household.engine import HouseholdEngine, State
from r3l.environments.household.game import Game, Wanted
from r3l.environments.household.generator import first_games
from r3l.environments.household.goal import is_won, progress, winnable
from r3l.environments.household.oracle import Verdict, oracle_pivot
from r3l.environments.household.solver import solve
from r3l.errors import WorldError
from r3l.records import Task

BOX = ("cabinet 1", "countertop 1", "fridge 1", "microwave 1", "sinkbasin 1", "box 1")


def game(
    wanted: tuple[Wanted, ...],
    objects: dict[str, int],
    level: str = "long",
    target: str = "box",
    places: tuple[str, ...] = BOX,
) -> Game:
    return Game(level, "t", places, tuple(objects), tuple(objects.values()), wanted, target)


def task(one: Game) -> Task:
    return Task(0, 0, "household/x", "household", "train", "t", one.to_json(), 0)


def everything(engine: HouseholdEngine, state: State) -> list[str]:
    """Every action that could mean something."""
    places, objects = engine.game.receptacles, engine.game.objects
    return (
        [f"{verb} {place}" for place in places for verb in ("go to", "open")]
        + [
            f"{verb} {thing} {word} {place}"
            for thing in objects
            for place in places
            for verb, word in (("take", "from"), ("move", "to"), ("clean", "with"), ("heat", "with"), ("cool", "with"))
        ]
        + [f"slice {thing} with {knife}" for thing in objects for knife in objects]
    )


def search(engine: HouseholdEngine, start: State) -> tuple[int | None, dict[State, int]]:
    """Breadth first: turns of the shortest way to win (None: there is none), and every state that can be reached."""
    depths, layer, best = {start: 0}, [start], None
    while layer:
        following = []
        for state in layer:
            if is_won(engine, state):
                best = depths[state] if best is None else best
                continue
            if engine.sealed(state):
                continue
            for action in everything(engine, state):
                after, _ = engine.step(state, action)
                if after not in depths:
                    depths[after] = depths[state] + 1
                    following.append(after)
        layer = following
    return best, depths


SMALL = {
    "heat": game((Wanted("mug", ("hot",)),), {"mug 1": 0}),
    "slice": game(
        (Wanted("tomato", ("sliced",)),), {"knife 1": 1, "tomato 1": 0}, places=("cabinet 1", "countertop 1", "box 1")
    ),
    "two": game(
        (Wanted("cup", (), 2),),
        {"cup 1": 0, "cup 2": 1},
        "standard",
        "countertop",
        ("cabinet 1", "countertop 1", "shelf 1"),
    ),
    "whole": game(
        (Wanted("potato", ("cool",)),),
        {"knife 1": 1, "potato 1": 1},
        "standard",
        "fridge",
        ("countertop 1", "shelf 1", "fridge 1"),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_winnable_is_what_an_exhaustive_search_finds_and_the_solver_is_as_short(name):
    engine = HouseholdEngine(SMALL[name])
    shortest, states = search(engine, engine.first)
    assert len(solve(engine)) == shortest
    ends = [state for state in states if is_won(engine, state) or engine.sealed(state)]
    lost = [state for state in states if state not in ends and not winnable(engine, state)]
    alive = [state for state in states if state not in ends and winnable(engine, state)]
    assert alive
    assert all(is_won(engine, state) == (progress(engine, state) == 1.0) for state in states)
    assert bool(lost) == (
        name in {"heat", "whole"}
    )  # in the others the box is sealed by what spoils it, or nothing can spoil
    for state in lost[:: max(1, len(lost) // 15)]:
        assert search(engine, state)[0] is None
        with pytest.raises(WorldError, match="can't be won any more"):
            solve(engine, state)
    for state in alive[:: max(1, len(alive) // 15)]:
        assert search(engine, state)[0] == len(solve(engine, state))


@pytest.mark.parametrize("level", ["short", "easy", "standard", "long"])
def test_every_action_of_a_plan_brings_the_goal_nearer(level):
    for one in first_games(level, "heldout", 3, 15):
        engine = HouseholdEngine(one)
        state, shares = engine.first, [0.0]
        for left, action in zip(range(len(solve(engine)), 0, -1), solve(engine), strict=True):
            assert len(solve(engine, state)) <= left
            state, _ = engine.step(state, action)
            shares.append(progress(engine, state))
        assert is_won(engine, state)
        assert shares[-1] == 1.0
        assert winnable(engine, state)


def test_progress_counts_fetched_treated_delivered():
    one = game((Wanted("mug", ("clean", "hot")), Wanted("cup", ())), {"cup 1": 1, "mug 1": 1})
    engine = HouseholdEngine(one)
    state, shares = engine.first, []
    for action in [
        "go to countertop 1",
        "take mug 1 from countertop 1",
        "go to sinkbasin 1",
        "clean mug 1 with sinkbasin 1",
        "go to box 1",
        "move mug 1 to box 1",
    ]:
        state, _ = engine.step(state, action)
        shares.append(progress(engine, state))
    assert shares == [
        0.0,
        1 / 6,
        1 / 6,
        2 / 6,
        2 / 6,
        0.0,
    ]  # a mug in the box that is not hot can't be put right any more
    assert not winnable(engine, state)


HOT_MUG = game((Wanted("mug", ("hot",)),), {"mug 1": 0, "cup 1": 1})
FETCH = ["go to cabinet 1", "open cabinet 1", "take mug 1 from cabinet 1"]


@pytest.mark.parametrize(("actions", "verdict"), [
    (
        [*FETCH, "go to microwave 1", "heat mug 1 with microwave 1", "go to box 1", "move mug 1 to box 1"],
        Verdict(None, "won"),
    ),
    (
        [*FETCH, "go to fridge 1", "cool mug 1 with fridge 1", "go to microwave 1", "heat mug 1 with microwave 1"],
        Verdict(4, "lost"),
    ),
    ([*FETCH, "go to box 1", "move mug 1 to box 1"], Verdict(4, "lost")),
    (
        [*FETCH, "go to microwave 1", "heat mug 1 with microwave 1", "heat mug 1 with microwave 1"],
        Verdict(5, "lost"),
    ),
    ([*FETCH, "go to countertop 1", "move mug 1 to countertop 1", "look"], Verdict(3, "wasted")),
    ([*FETCH, "go to microwave 1", "", "look", "inventory"], Verdict(4, "wasted")),
    (
        ["go to countertop 1", "go to fridge 1", "open fridge 1", "go to countertop 1", "go to fridge 1"],
        Verdict(3, "wasted"),
    ),
    (["go to countertop 1", "go to fridge 1", "open fridge 1"], Verdict(0, "slow")),
    ([*FETCH, "go to microwave 1"], Verdict(3, "slow")),
    (["look", "go to cabinet 1", "open cabinet 1", "take mug 1 from cabinet 1", "look"], Verdict(4, "wasted")),
    ([], Verdict(0, "slow")),
])  # fmt: skip
def test_the_oracle_names_the_turn_to_retry_from(actions, verdict):
    assert oracle_pivot(task(HOT_MUG), actions) == verdict


def test_retrying_from_the_oracles_pivot_can_always_win():
    """Spoil every long task at a chosen late turn: the oracle names it, and the kept prefix is still winnable."""
    for number, one in enumerate(first_games("long", "train", 5, 15)):
        engine, plan = HouseholdEngine(one), solve(HouseholdEngine(one))
        takes = [k for k, action in enumerate(plan) if action.startswith("take") and "knife" not in action]
        at = takes[number % len(takes)] + 1
        thing = " ".join(plan[at - 1].split()[1:3])
        actions = [*plan[:at], "go to garbagecan 1", f"move {thing} to garbagecan 1", "look", "inventory"]
        assert oracle_pivot(task(one), actions) == Verdict(at + 1, "lost")
        state = engine.first
        for action in actions[: at + 1]:
            state, _ = engine.step(state, action)
        assert winnable(engine, state)
