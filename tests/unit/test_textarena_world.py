"""Games of the real TextArena, for one player and against a scripted opponent."""

import random
import re
from importlib.util import find_spec

import pytest

from r3l import plugins
from r3l.config.environments.adapters import TextArenaSettings
from r3l.environments import make_world, tasks_of
from r3l.environments.adapters.arena import draw_move
from r3l.environments.workers.pool import WorldPool
from r3l.environments.workers.sessions import Sessions
from r3l.errors import WorldError

ALONE = TextArenaSettings(train_tasks=4, heldout_tasks=2, workers=1)
DUEL = TextArenaSettings(env="TicTacToe-v0", players=2, train_tasks=4, heldout_tasks=2, workers=1)
SCRIPT = "tests.unit.test_textarena_world:first_free"
needs_textarena = pytest.mark.skipif(find_spec("textarena") is None, reason="needs the extra [textarena]")


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.NAMED, SCRIPT)


def bisect(environment, task) -> list:
    """Guess the number by halves."""
    low, high = (int(n) for n in re.search(r"between (\d+) and (\d+)", environment.reset(task).text).groups())
    steps = []
    while not steps or not steps[-1].done:
        middle = (low + high) // 2
        steps.append(environment.step(f"[{middle}]"))
        low, high = (middle + 1, high) if "higher" in steps[-1].observation.text else (low, middle - 1)
    return steps


def first_free(observation: str) -> str:
    """A scripted opponent: the first move of the last offer."""
    return re.findall(r"\[\d\]", observation.rsplit("Available Moves", 1)[1])[0]


def test_an_opponent_draws_from_the_last_offer() -> None:
    text = "Available Moves: '[0]', '[1]'\n...\nAvailable Moves: '[4]', '[7]'"
    random.seed(0)
    assert {draw_move(text) for _ in range(50)} == {"[4]", "[7]"}
    with pytest.raises(WorldError, match=r"environment\.opponent=module:function"):
        draw_move("Say anything.")


@pytest.mark.skipif(find_spec("textarena") is not None, reason="textarena is installed here")
def test_without_the_package_the_preflight_says_what_to_install() -> None:
    with pytest.raises(WorldError, match=r"pip install 'r3l\[textarena\]'"):
        tasks_of(ALONE, "train")


@needs_textarena
def test_a_game_for_one_is_won_by_a_good_player_and_says_only_what_is_new() -> None:
    world = make_world(ALONE)
    for task in world.tasks("train"):
        steps = bisect(world.make(), task)
        assert (steps[-1].done, steps[-1].reward, steps[-1].success) == (True, 1.0, True)
        for step in steps[:-1]:
            assert step.observation.text in ("The target number is higher.", "The target number is lower.")
    environment = world.make()
    environment.reset(world.tasks("train")[0])
    for _ in range(2):
        lost = environment.step("I do not know")
    assert lost.done
    assert not lost.success
    assert "Invalid Move" in lost.observation.text


@needs_textarena
@pytest.mark.parametrize("settings", [ALONE, DUEL], ids=["alone", "duel"])
@pytest.mark.parametrize("snapshots", [True, False])
def test_rollbacks_are_exact_to_the_opponents_next_move(settings: TextArenaSettings, snapshots: bool) -> None:
    world = make_world(settings)
    if not snapshots:
        world.copies.distrust("for the test")
    task, sessions = world.tasks("train")[0], Sessions(world)
    seen, actions = [sessions.start("base", task).text], []
    while len(actions) < 3:
        free = re.findall(r"\[\d\]", seen[-1].rsplit("Available", 1)[-1]) if settings is DUEL else ["[2]"]
        actions.append(free[0])
        seen.append(sessions.step("base", actions[-1]).observation.text)
    for pivot in range(3):
        rollback = sessions.rollback(f"{pivot}", task, actions[:pivot], seen[: pivot + 1])
        assert rollback.diverged_at is None
        again = [sessions.step(f"{pivot}", one).observation.text for one in actions[pivot:]]
        assert again == seen[pivot + 1 :]
    assert (world.copies.checked > 0) == snapshots


@needs_textarena
@pytest.mark.parametrize("plays", ["first", "second"])
def test_against_a_script_that_anybody_beats(plays: str) -> None:
    settings = DUEL.model_copy(update={"plays": plays, "opponent": SCRIPT})
    world = make_world(settings)
    environment = world.make()
    opening = environment.reset(world.tasks("train")[0]).text
    assert ("Player 0: [0]" in opening) == (plays == "second")
    assert f"You are Player {0 if plays == 'first' else 1}" in opening
    last = [environment.step(move) for move in ("[4]", "[2]", "[6]")][-1]  # the script fills 0, 1, 3
    assert (last.done, last.reward, last.success) == (True, 1.0, True)


@needs_textarena
def test_a_lost_game_and_a_tie_are_worth_nothing_and_half() -> None:
    world = make_world(DUEL.model_copy(update={"opponent": SCRIPT}))
    environment = world.make()
    environment.reset(world.tasks("train")[0])
    lost = [environment.step(move) for move in ("[8]", "[4]", "[7]")][-1]  # the script fills 0, 1, 2
    assert (lost.done, lost.reward, lost.success) == (True, 0.0, False)
    environment.reset(world.tasks("train")[0])
    tie = [environment.step(move) for move in ("[2]", "[4]", "[3]", "[7]", "[8]")][-1]  # the script: 0, 1, 5, 6
    assert (tie.done, tie.reward, tie.success) == (True, 0.5, False)


@needs_textarena
def test_what_can_not_be_played_says_why() -> None:
    for update, reason in (
        ({"env": "NoSuch-v0"}, "NoSuch-v0 not found|NoSuch-v0-raw not found"),
        ({"players": 2}, "can't start GuessTheNumber-v0 for 2"),
    ):
        world = make_world(ALONE.model_copy(update=update))
        with pytest.raises(WorldError, match=reason):
            world.make().reset(world.tasks("train")[0])


@needs_textarena
def test_an_episode_and_its_rollback_work_in_a_worker_process() -> None:
    task = tasks_of(ALONE, "heldout")[0]
    with WorldPool(ALONE) as pool:
        opening = pool.start("base", task).result(120).text
        first = pool.step("base", "[3]").result(60)
        rollback = pool.rollback("retry", task, ["[3]"], [opening, first.observation.text]).result(60)
        assert rollback.diverged_at is None
        assert pool.counts()["restores"] == 1
