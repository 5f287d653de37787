"""The world that exploration sees: replies, episodes, snapshots, and rollback against replay."""

import random
from dataclasses import replace

import pytest

from r3l.config.environments import AlfworldSettings
from r3l.environments.alfworld.game_files import games_root, read_trajectory
from r3l.environments.base import World
from r3l.environments.kinds import make_world
from r3l.environments.workers.sessions import Sessions
from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.seeds import derive
from tests.unit.alfworld_winner import winning_actions


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(AlfworldSettings(data_root=str(tmp_path_factory.mktemp("tasks")), train_games=3, heldout_games=1))


def walk(world: World, task: Task, turns: int, seed: int) -> tuple[list[str], list[str]]:
    """Random admissible actions, some nonsense: (actions, observations), one observation more than actions."""
    environment, rng = world.make(), random.Random(seed)
    seen = environment.reset(task)
    actions, texts = [], [seen.text]
    for _ in range(turns):
        actions.append(rng.choice(seen.admissible) if rng.random() < 0.9 else "juggle the mugs")
        seen = environment.step(actions[-1]).observation
        texts.append(seen.text)
    return actions, texts


@pytest.mark.parametrize(("text", "action"), [
    ("<think>t</think><action>go to fridge 1</action>", "go to fridge 1"),
    ("<think>\nlong\nthought</think>\n\n<action> look </action>", "look"),
])  # fmt: skip
def test_a_reply_with_both_tags_is_valid(world: World, text: str, action: str) -> None:
    assert world.parse_reply(text).valid
    assert world.parse_reply(text).action == action


@pytest.mark.parametrize(("text", "reason"), [
    ("<action>look</action>", "0 <think> tags"),
    ("<action>look</action><think>t</think>", "not in order"),
    ("<think>t</think>", "0 <action> tags"),
    ("<think>t</think><action>look</action><action>look</action>", "2 <action> tags"),
    ("<think>t</think><action></action>", "empty"),
    ("<think>t</think><action>look\nlook</action>", "more than one line"),
    ("<think>t<action>look</action>", "</think>"),
    ("", "0 <think> tags"),
])  # fmt: skip
def test_any_other_reply_says_what_is_wrong(world: World, text: str, reason: str) -> None:
    reply = world.parse_reply(text)
    assert (reply.valid, reply.action) == (False, "")
    assert reason in reply.error


def test_the_opening_names_the_room_and_the_task(world: World) -> None:
    opening = world.make().reset(world.tasks("train")[0])
    assert opening.text.startswith("You are in the middle of a room.")
    assert "\n\nYour task is to: " in opening.text
    assert "look" in opening.admissible


def test_admissible_commands_are_a_setting(world: World) -> None:
    settings = world.settings.model_copy(update={"admissible": True})  # type: ignore[attr-defined]
    listing = make_world(settings).make().reset(world.tasks("train")[0])
    assert listing.text.endswith("\n\nAdmissible commands: " + ", ".join(listing.admissible))


def test_an_action_that_is_not_understood_changes_nothing(world: World) -> None:
    environment = world.make()
    before = environment.reset(world.tasks("train")[0]).admissible
    step = environment.step("juggle the mugs")
    assert (step.observation.text, step.accepted, step.done) == ("Nothing happens.", False, False)
    assert step.observation.admissible == before


def test_episodes_of_one_task_do_not_disturb_each_other(world: World) -> None:
    task = world.tasks("train")[1]
    alone, texts = walk(world, task, 15, seed=4)
    one, other, rng = world.make(), world.make(), random.Random(9)
    one.reset(task)
    there = other.reset(task)
    for action, text in zip(alone, texts[1:], strict=True):
        there = other.step(rng.choice(there.admissible)).observation
        assert one.step(action).observation.text == text


def test_rollback_at_every_turn_is_the_same_by_snapshot_and_by_replay(world: World) -> None:
    task, tail = world.tasks("train")[0], 4
    actions, texts = walk(world, task, 20, seed=derive(0, "walk"))
    known = Sessions(world)
    known.start("base", task)
    for action in actions:
        known.step("base", action)
    for pivot in range(len(actions) - tail):
        fresh = Sessions(world)
        for sessions, name in ((known, "restores"), (fresh, "replays")):
            rollback = sessions.rollback(f"retry {pivot}", task, actions[:pivot], texts[: pivot + 1])
            assert (rollback.diverged_at, rollback.observations) == (None, texts[: pivot + 1])
            after = [
                sessions.step(f"retry {pivot}", action).observation.text for action in actions[pivot : pivot + tail]
            ]
            assert after == texts[pivot + 1 : pivot + tail + 1]
            assert sessions.counts[name] == (0 if pivot == 0 else pivot if name == "restores" else 1)


def test_a_winning_and_a_losing_episode_with_a_rollback_to_every_turn(world: World) -> None:
    task = world.tasks("train")[2]
    environment = world.make()
    opening = environment.reset(task).text
    known = read_trajectory(games_root(world.settings), task)  # type: ignore[attr-defined]
    winning = winning_actions(environment.at.engine, known)  # type: ignore[attr-defined]
    for actions, won in ((winning, True), (["look", "inventory", *winning[:-1]], False)):
        environment.reset(task)
        steps = [environment.step(action) for action in actions]
        assert [step.done for step in steps] == [False] * (len(steps) - 1) + [won]
        assert (steps[-1].reward, steps[-1].success, steps[-1].standing) == (float(won), won, 0.0)
        texts = [opening, *(step.observation.text for step in steps)]
        for pivot in range(len(actions)):
            sessions = Sessions(world)
            assert sessions.rollback("retry", task, actions[:pivot], texts[: pivot + 1]).diverged_at is None
            assert sessions.step("retry", actions[pivot]) == steps[pivot]


def test_a_doctored_observation_is_named_by_its_turn(world: World) -> None:
    task = world.tasks("train")[0]
    actions, texts = walk(world, task, 8, seed=1)
    for turn in (0, 3, 8):
        doctored = [*texts[:turn], "You see a dragon.", *texts[turn + 1 :]]
        sessions = Sessions(world)
        rollback = sessions.rollback("retry", task, actions, doctored)
        assert rollback.diverged_at == turn
        with pytest.raises(WorldError, match="no session retry"):
            sessions.step("retry", "look")


def test_malformed_turns_never_reach_the_world(world: World) -> None:
    task = world.tasks("train")[0]
    actions, texts = walk(world, task, 4, seed=2)
    rollback = Sessions(world).rollback(
        "retry", task, [*actions[:2], "", *actions[2:]], [*texts[:3], "Invalid reply", *texts[3:]]
    )
    assert rollback.diverged_at is None
    assert rollback.observations == [*texts[:3], "Invalid reply", *texts[3:]]


def test_a_missing_game_says_how_to_get_it(world: World) -> None:
    task = world.tasks("train")[0]
    lost = replace(task, payload='{"game": "train/none/trial/game.tw-pddl"}')
    with pytest.raises(WorldError, match="r3l prepare alfworld"):
        world.make().reset(lost)
