"""The household world: full winning and losing episodes, its phrases, rollback at every turn, disjoint splits."""

import json
import random

import pytest

from r3l.config.environments import HouseholdSettings
from r3l.environments.base import Step
from r3l.environments.household.engine import HouseholdEngine
from r3l.environments.household.game import Game, Wanted
from r3l.environments.household.generator import first_games
from r3l.environments.household.oracle import replay
from r3l.environments.household.solver import solve
from r3l.environments.household.world import HouseholdEnvironment, HouseholdWorld
from r3l.environments.kinds import tasks_of
from r3l.errors import ConfigError, WorldError
from r3l.lab.warm_start.household.player import play
from r3l.records import Task

LEVELS = ("short", "easy", "standard", "long")


def world(level: str = "standard", **settings) -> HouseholdWorld:
    return HouseholdWorld(HouseholdSettings(level=level, train_tasks=40, heldout_tasks=40, **settings))


def played(env: HouseholdEnvironment, actions: list[str]) -> list[Step]:
    return [env.step(action) for action in actions]


def small(
    level: str = "standard", wanted: tuple[Wanted, ...] = (Wanted("mug", ("clean",)),), target: str = "shelf"
) -> Task:
    """A mug in the closed cabinet, a knife and a tomato on the countertop."""
    game = Game(
        level, "t",
        ("cabinet 1", "countertop 1", "shelf 1", "sinkbasin 1", "microwave 1", "fridge 1", "box 1", "garbagecan 1"),
        ("knife 1", "mug 1", "tomato 1"), (1, 0, 1), wanted, target,
    )  # fmt: skip
    return Task(0, 0, "household/small", "household", "train", "t", game.to_json(), 0)


@pytest.mark.parametrize("level", LEVELS)
def test_the_solver_wins_every_task_on_its_last_action(level):
    w = world(level)
    for task in [*w.tasks("train"), *w.tasks("heldout")]:
        env = w.make()
        env.reset(task)
        steps = played(env, solve(HouseholdEngine(Game.from_json(task.payload))))
        assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]
        assert (steps[-1].reward, steps[-1].success, steps[-1].progress) == (1.0, True, 1.0)
        assert all(step.reward == 0.0 and step.accepted and step.progress < 1.0 for step in steps[:-1])


def test_a_winning_episode_in_alfworlds_words():
    env = world().make()
    assert env.reset(small()).text == (
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, a shelf "
        "1, a sinkbasin 1, "
        "a microwave 1, a fridge 1, a box 1, and a garbagecan 1.\n\nYour task is to: put a clean mug in shelf."
    )
    spoken = {
        "inventory": "You are not carrying anything.",
        "go to countertop 1": "You arrive at countertop 1. On the countertop 1, you see a knife 1, and a tomato 1.",
        "go to cabinet 1": "You arrive at cabinet 1. The cabinet 1 is closed.",
        "take mug 1 from cabinet 1": "Nothing happens.",
        "open cabinet 1": "You open the cabinet 1. The cabinet 1 is open. In it, you see a mug 1.",
        "examine mug 1": "There's nothing special about mug 1.",
        " take mug 1  from cabinet 1 ": "You pick up the mug 1 from the cabinet 1.",
        "inventory ": "You are carrying: a mug 1.",
        "examine cabinet 1": "The cabinet 1 is open. In it, you see nothing.",
        "close cabinet 1": "You close the cabinet 1.",
        "clean mug 1 with sinkbasin 1": "Nothing happens.",
        "go to sinkbasin 1": "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.",
        "look": "You are facing the sinkbasin 1. Next to it, you see nothing.",
        "clean mug 1 with sinkbasin 1 ": "You clean the mug 1 using the sinkbasin 1.",
        "examine mug 1 ": "This is a clean mug 1.",
        "go to shelf 1": "You arrive at shelf 1. On the shelf 1, you see nothing.",
        "move mug 1 to shelf 1": "You move the mug 1 to the shelf 1.",
    }
    steps = {action: env.step(action) for action in spoken}
    assert {action: step.observation.text for action, step in steps.items()} == spoken
    assert [action for action, step in steps.items() if not step.accepted] == [
        "take mug 1 from cabinet 1",
        "clean mug 1 with sinkbasin 1",
    ]
    assert [step.progress for step in steps.values()] == [0.0] * 6 + [1 / 3] * 7 + [2 / 3] * 3 + [1.0]
    assert steps["move mug 1 to shelf 1"].success


def test_a_losing_episode_ends_by_no_word_of_the_world_unless_asked():
    """A second change of temperature ruins the only mug: lost, but only `end_when_lost` says so."""
    task = small("long", (Wanted("mug", ("hot",)),), "box")
    actions = [
        "go to cabinet 1", "open cabinet 1", "take mug 1 from cabinet 1", "go to fridge 1", "cool mug 1 with fridge 1",
        "go to microwave 1", "heat mug 1 with microwave 1", "examine mug 1", "go to box 1",
    ]  # fmt: skip
    for end_when_lost, length in ((False, len(actions)), (True, 5)):
        env = HouseholdEnvironment(end_when_lost)
        env.reset(task)
        steps = played(env, actions[:length])
        assert [step.done for step in steps] == [False] * (length - 1) + [end_when_lost]
        assert all(step.reward == 0.0 and not step.success for step in steps)
    env = HouseholdEnvironment()
    env.reset(task)
    texts = [step.observation.text for step in played(env, actions)]
    assert texts[4:8] == [
        "You cool the mug 1 using the fridge 1.",
        "You arrive at microwave 1. The microwave 1 is closed.",
        "You heat the mug 1 using the microwave 1. The mug 1 is ruined.",
        "This is a cool ruined mug 1.",
    ]
    last = env.step("move mug 1 to box 1")
    assert (last.observation.text, last.done, last.reward) == (
        "You move the mug 1 to the box 1. The box 1 is sealed.",
        True,
        0.0,
    )


def test_on_long_the_box_and_the_garbage_can_keep_what_they_get_and_elsewhere_they_do_not():
    way = [
        "go to countertop 1",
        "take tomato 1 from countertop 1",
        "go to garbagecan 1",
        "move tomato 1 to garbagecan 1",
    ]
    for level, answer in (
        ("long", "Nothing happens."),
        ("standard", "You pick up the tomato 1 from the garbagecan 1."),
    ):
        env = HouseholdEnvironment()
        env.reset(small(level, (Wanted("mug", ()), Wanted("tomato", ())), "box"))
        played(env, way)
        assert env.step("take tomato 1 from garbagecan 1").observation.text == answer


def test_slicing_needs_the_knife_in_hand_and_changes_what_counts():
    env = HouseholdEnvironment()
    env.reset(small(wanted=(Wanted("tomato", ("sliced",)),)))
    texts = [
        step.observation.text
        for step in played(
            env,
            [
                "go to countertop 1", "slice tomato 1 with knife 1", "take knife 1 from countertop 1",
                "slice tomato 1 with knife 1", "slice tomato 1 with knife 1", "move knife 1 to countertop 1",
                "take tomato 1 from countertop 1",
            ],
        )
    ]  # fmt: skip
    assert texts[1] == texts[4] == "Nothing happens."
    assert texts[3] == "You sliced the tomato 1 with the knife 1."
    env.step("go to shelf 1")
    assert env.step("move tomato 1 to shelf 1").success


@pytest.mark.parametrize("action", [
    "", "fly", "go to", "go to shelf", "go to shelf 9", "open shelf 1", "open fridge 1", "take mug 1 of shelf 1",
    "take mug 1 from shelf 1", "move mug 1 to shelf 1", "heat mug 1 with microwave 1", "x" * 5000,
    "take mug 1 from shelf 1 now", "slice mug 1 with knife 1", "cool mug 1 to fridge 1",
])  # fmt: skip
def test_what_is_not_understood_or_not_possible_changes_nothing(action):
    env = HouseholdEnvironment()
    env.reset(small())
    before = env.snapshot()
    step = env.step(action)
    assert (step.observation.text, step.accepted, step.done, env.snapshot()) == (
        "Nothing happens.",
        False,
        False,
        before,
    )


@pytest.mark.parametrize("level", LEVELS)
def test_the_splits_share_no_errand_and_the_same_seed_gives_the_same_tasks(level):
    train, heldout = (first_games(level, split, 0, 200) for split in ("train", "heldout"))
    assert not {game.key() for game in train} & {game.key() for game in heldout}
    w = world(level)
    assert w.tasks("train") == HouseholdWorld(w.settings).tasks("train")
    assert [task.payload for task in w.tasks("train")] != [
        task.payload for task in world(level, tasks_seed=1).tasks("train")
    ]
    assert len({task.task_id for task in w.tasks("train") + w.tasks("heldout")}) == 80


def test_short_tasks_leave_turns_over_and_their_observations_are_short():
    games = [game for split in ("train", "heldout") for game in first_games("short", split, 0, 200)]
    engines = [HouseholdEngine(game) for game in games]
    solutions = [solve(engine) for engine in engines]
    assert {len(solution) for solution in solutions} == {4, 6}
    assert max(len(play(engine, random.Random(0), 20)) for engine in engines) == 8  # with two places in vain
    assert HouseholdSettings(level="short").max_turns == 8
    assert HouseholdSettings(level="short", max_turns=12).max_turns == 12
    assert {one.conditions for game in games for one in game.wanted} == {(), ("clean",), ("hot",), ("cool",)}
    texts = [text for engine, solution in zip(engines, solutions, strict=True) for text in replay(engine, solution)[1]]
    assert max(map(len, texts)) < 110
    assert max(len(engine.opening()) for engine in engines) < 240
    assert not any("open" in action for solution in solutions for action in solution)


def test_long_tasks_take_twenty_turns_and_fit_the_least_turns_allowed():
    lengths = [len(solve(HouseholdEngine(game))) for game in first_games("long", "train", 0, 200)]
    assert min(lengths) >= 20
    assert max(lengths) <= 29
    assert HouseholdSettings(level="long").max_turns == 50
    with pytest.raises(ValueError, match="max_turns=25 is too few for level long"):
        HouseholdSettings(level="long", max_turns=25)


def test_a_game_survives_its_payload_and_a_broken_payload_is_a_world_error():
    for level in LEVELS:
        for game in first_games(level, "heldout", 0, 20):
            assert Game.from_json(game.to_json()) == game
    for payload in ("{}", "no json", '{"level": 3}', json.dumps([1])):
        with pytest.raises(WorldError, match="not a household game"):
            HouseholdEnvironment().reset(Task(0, 0, "x", "household", "train", "t", payload, 0))
    with pytest.raises(WorldError, match="expected one of train, heldout"):
        world().tasks("valid")


def test_the_prompt_tells_the_turns_and_the_rules_of_its_level():
    assert "within 25 steps" in world().system_prompt()
    assert "ruins it" not in world().system_prompt()
    assert (
        world("long").system_prompt().endswith("The box is sealed when it holds as many things as the task asks for.")
    )
    assert "within 50 steps" in world("long").system_prompt()
    assert world("short").system_prompt().endswith("Complete the task within 8 steps.")
    assert len(world("short").system_prompt()) < len(world("easy").system_prompt()) / 2
    assert world().parse_reply("<think>a</think><action>look</action>").action == "look"


def test_only_the_task_types_that_are_asked_for():
    settings = HouseholdSettings(level="easy", train_tasks=60)
    every, heated = (
        tasks_of(settings.model_copy(update={"task_types": types}), "train")
        for types in ((), ("pick_heat_then_place_in_recep",))
    )
    assert heated == [task for task in every if task.task_type == "pick_heat_then_place_in_recep"]
    assert 0 < len(heated) < len(every) == 60
    with pytest.raises(
        ConfigError, match="train has no task of type fry; its types are pick_and_place_simple, pick_clean"
    ):
        tasks_of(settings.model_copy(update={"task_types": ("fry",)}), "train")
