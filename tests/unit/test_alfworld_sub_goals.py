"""Sub-goals on the real engine: what each action of a winning way adds, by hand, and a way without the treatment."""

import re
from pathlib import Path

import pytest
from textworld.logic import Proposition, Signature

from r3l.config.environments import AlfworldSettings
from r3l.environments.alfworld.engine import GameEngine
from r3l.environments.alfworld.errand import SubGoals
from r3l.environments.alfworld.game_files import games_root, read_trajectory, write_game
from r3l.environments.alfworld.games import generate_game
from r3l.environments.alfworld.parsing import memoised_parsing
from r3l.environments.kinds import make_world
from tests.unit.alfworld_winner import winning_actions

Steps = list[tuple[str, float]]
WAYS = {  # after each action that adds something, in thirds, quarters or halves
    "pick_and_place_simple": [("take", 1 / 2), ("move", 1)],
    "look_at_obj_in_light": [("take", 1 / 2), ("use", 1)],
    "pick_clean_then_place_in_recep": [("take", 1 / 3), ("clean", 2 / 3), ("move", 1)],
    "pick_heat_then_place_in_recep": [("take", 1 / 3), ("heat", 2 / 3), ("move", 1)],
    "pick_cool_then_place_in_recep": [("take", 1 / 3), ("cool", 2 / 3), ("move", 1)],
    "pick_two_obj_and_place": [("take", 1 / 4), ("move", 2 / 4), ("take", 3 / 4), ("move", 1)],
}


def walk(task_type: str, folder: Path, treat: bool = True) -> Steps:
    """(first word, share) of the actions after which the share is another one."""
    games = (generate_game("full", 5, "train", index) for index in range(30))
    game = next(game for game in games if game.goal.task_type == task_type)
    with memoised_parsing():
        engine = GameEngine(write_game(game, folder))
        engine.reset()
        sub_goals = SubGoals.of(task_type, game.trajectory["pddl_params"])
        last, seen = sub_goals.share(engine.facts(), won=False), []
        assert last == 0
        for action in winning_actions(engine, game.trajectory, treat):
            won = engine.step(action).won
            share = sub_goals.share(engine.facts(), won)
            assert (share == 1) == won
            if share != last:
                seen.append((action.split()[0], round(share, 9)))
            last = share
    return seen


@pytest.mark.parametrize("task_type", WAYS)
def test_each_part_of_an_errand_adds_its_share(task_type: str, tmp_path: Path) -> None:
    assert walk(task_type, tmp_path) == [(word, round(share, 9)) for word, share in WAYS[task_type]]


def test_an_object_that_was_not_treated_is_not_delivered(tmp_path: Path) -> None:
    assert walk("pick_heat_then_place_in_recep", tmp_path, treat=False) == [("take", round(1 / 3, 9))]


def test_two_things_on_two_shelves_are_not_all_of_it() -> None:
    """The goal is two on one shelf, so the engine does not call it won."""
    state = """objecttype(mug1: object, mugtype: otype), objecttype(mug2: object, mugtype: otype),
        receptacletype(shelf1: receptacle, shelftype: rtype), receptacletype(shelf2: receptacle, shelftype: rtype),
        inreceptacle(mug1: object, shelf1: receptacle), inreceptacle(mug2: object, shelf2: receptacle)"""
    facts: dict[Signature, list[Proposition]] = {}
    for text in re.findall(r"\w+\(.*?\)", state):
        proposition = Proposition.parse(text)
        facts.setdefault(proposition.signature, []).append(proposition)
    about = {"object_target": "Mug", "parent_target": "Shelf", "toggle_target": ""}
    assert SubGoals.of("pick_two_obj_and_place", about).share(facts, won=False) == 3 / 4


def test_a_step_of_the_world_tells_the_share_after_a_rollback_too(tmp_path: Path) -> None:
    world = make_world(AlfworldSettings(data_root=str(tmp_path), train_games=1, heldout_games=1))
    (task,) = world.tasks("train")
    environment = world.make()
    environment.reset(task)
    root = games_root(world.settings)  # type: ignore[attr-defined]
    assert environment.at is not None  # type: ignore[attr-defined]
    actions = winning_actions(environment.at.engine, read_trajectory(root, task))  # type: ignore[attr-defined]
    shares = [environment.step(actions[0]).progress]
    after_one = environment.snapshot()
    shares += [environment.step(action).progress for action in actions[1:]]
    assert (shares[0], shares[-1]) == (0, 1)
    other = world.make()
    other.restore(after_one)
    assert [other.step(action).progress for action in actions[1:]] == shares[1:]
