"""Generated games: the same from the same seed, all six types winnable on the real engine, and kept where they
belong."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from r3l.config.environments import AlfworldSettings
from r3l.environments.alfworld.engine import GameEngine
from r3l.environments.alfworld.game_files import list_games, write_game
from r3l.environments.alfworld.games import KITCHEN_TYPES, Game, generate_game
from r3l.environments.alfworld.parsing import memoised_parsing
from r3l.environments.alfworld.rooms import TASK_TYPES
from r3l.environments.kinds import make_world
from r3l.errors import WorldError
from tests.unit.alfworld_winner import winning_actions


def test_a_game_depends_on_seed_split_and_index_alone() -> None:
    one, other = generate_game("kitchen", 3, "train", 7), generate_game("kitchen", 3, "train", 7)
    assert one == other
    assert {
        generate_game("kitchen", *key).content["pddl_problem"]
        for key in ((4, "train", 7), (3, "heldout", 7), (3, "train", 22))
    }.isdisjoint({one.content["pddl_problem"]})


def object_counts(game: Game) -> Counter[str]:
    """Kind -> how many of it the room holds."""
    return Counter(re.findall(r"\(objectType [^ ?]+ (\w+)Type\)", game.content["pddl_problem"]))


def test_kitchens_are_small_and_full_rooms_have_all_six_types() -> None:
    kitchens = [generate_game("kitchen", 0, "train", index) for index in range(len(KITCHEN_TYPES))]
    assert [game.goal.task_type for game in kitchens] == list(KITCHEN_TYPES)
    assert max(game.content["pddl_problem"].count("(receptacleAtLocation ") for game in kitchens) == 7
    assert {count for game in kitchens for count in object_counts(game).values()} == {1}
    assert {generate_game("full", 0, "train", index).goal.task_type for index in range(6)} == set(TASK_TYPES)


@pytest.mark.parametrize("index", range(6))
def test_every_task_type_is_won_and_not_won_without_the_treatment(index: int, tmp_path: Path) -> None:
    game = generate_game("full", 1, "train", index)
    with memoised_parsing():
        engine = GameEngine(write_game(game, tmp_path))
        wins = [engine.step(action).won for action in winning_actions(engine, game.trajectory)]
        assert wins == [False] * (len(wins) - 1) + [True]
        engine.reset()
        if game.goal.task_type in {
            "pick_heat_then_place_in_recep",
            "pick_cool_then_place_in_recep",
            "pick_clean_then_place_in_recep",
        }:
            assert not any(engine.step(action).won for action in winning_actions(engine, game.trajectory, treat=False))
        assert not any(engine.step(action).won for action in ["look", "inventory"] * 12)


def test_games_are_made_once_and_more_are_added(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    few = AlfworldSettings(data_root=str(tmp_path), train_games=3, heldout_games=2)
    first = list_games(few, "train", lambda done, of: calls.append((done, of)))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("game.tw-pddl")}
    more = list_games(few.model_copy(update={"train_games": 4}), "train")
    assert more[:3] == first
    assert len(more) == 4
    assert all(path.stat().st_mtime_ns == time for path, time in written.items())
    assert not list(tmp_path.rglob(".staging-*"))


def test_tasks_of_the_splits_differ_and_are_in_order(tmp_path: Path) -> None:
    world = make_world(AlfworldSettings(data_root=str(tmp_path), train_games=4, heldout_games=3))
    train, heldout = world.tasks("train"), world.tasks("heldout")
    assert [task.task_id.split("/")[2][:5] for task in train] == ["00000", "00001", "00002", "00003"]
    assert len({task.seed for task in (*train, *heldout)}) == 7
    assert [task.task_type for task in heldout] == list(KITCHEN_TYPES[:3])
    with pytest.raises(WorldError, match=r"'test'.*train, heldout"):
        world.tasks("test")


def downloaded(root: Path, split: str, name: str, solvable: bool) -> None:
    game = generate_game("full", 0, "train", 0)
    trial = root / "alfworld" / "json_2.1.1" / split / name / "trial_T20190907_000000_000001"
    trial.mkdir(parents=True)
    (trial / "game.tw-pddl").write_text(json.dumps({**game.content, "solvable": solvable}))
    (trial / "traj_data.json").write_text(json.dumps(game.trajectory))


def test_the_downloaded_layout_is_read_sorted_and_without_unsolvable_games(tmp_path: Path) -> None:
    for name, solvable in (("b", True), ("a", True), ("c", False)):
        downloaded(tmp_path, "valid_seen", name, solvable)
    settings = AlfworldSettings(data_root=str(tmp_path), games="downloaded", partial=True)
    names = [game.name.split("/")[0] for game in list_games(settings, "heldout")]
    assert names == ["a", "b"]
    assert list_games(settings, "valid_seen") == list_games(settings, "heldout")
    downloaded(tmp_path, "valid_seen", "d", True)
    assert len(list_games(settings, "valid_seen")) == 3
    with pytest.raises(WorldError, match="r3l prepare alfworld"):
        list_games(settings, "train")


def test_folders_that_the_original_leaves_out_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "Sliced"  # the name of a folder above the games says nothing
    for name in ("a", "look_at_obj_in_light-AppleSliced-None-DeskLamp-1", "pick_and_place_with_movable_recep-A-B-C-1"):
        downloaded(root, "valid_unseen", name, True)
    settings = AlfworldSettings(data_root=str(root), games="downloaded", partial=True)
    assert [game.name.split("/")[0] for game in list_games(settings, "valid_unseen")] == ["a"]


def test_a_part_of_the_downloaded_games_is_played_when_asked_for_and_named(tmp_path: Path) -> None:
    downloaded(tmp_path, "valid_seen", "a", True)
    settings = AlfworldSettings(data_root=str(tmp_path), games="downloaded")
    with pytest.raises(WorldError, match=r"got 1 games, expected 140: .*--partial` and environment.partial=true"):
        list_games(settings, "heldout")
    assert make_world(settings).data("heldout") == "json_2.1.1"
    part = settings.model_copy(update={"partial": True})
    assert len(list_games(part, "heldout")) == 1
    assert make_world(part).data("heldout") == "json_2.1.1, 1 of 140 games"
    assert make_world(part).data("train") == "json_2.1.1, 0 of 3,553 games"


def test_generated_games_name_the_size_of_their_world(tmp_path: Path) -> None:
    for games in ("kitchen", "full"):
        assert make_world(AlfworldSettings(games=games, games_seed=2)).data("heldout") == f"{games}-2"


def test_two_objects_never_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner refuses a game with a name twice, so such a draw is drawn again: with one name for all, no draw can
    succeed."""
    monkeypatch.setattr("r3l.environments.alfworld.games.object_name", lambda kind, receptacle, rng: f"{kind}|same")
    with pytest.raises(WorldError, match="no room suits pick_two_obj_and_place"):
        generate_game("full", 0, "train", TASK_TYPES.index("pick_two_obj_and_place"))
