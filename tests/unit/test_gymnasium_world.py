"""Text environments of the real gymnasium: episodes, rollbacks, seeds, workers. The environment is made in support."""

import json
from importlib.util import find_spec

import pytest

from r3l import plugins
from r3l.config.compose import compose
from r3l.config.environments.adapters import GymnasiumSettings
from r3l.environments.adapters.texts import object_named
from r3l.environments.kinds import make_world, tasks_of
from r3l.environments.workers.pool import WorldPool
from r3l.environments.workers.sessions import Sessions
from r3l.errors import ConfigError, WorldError

SETTINGS = GymnasiumSettings(env="tests.support.gym_safe:Safe-v0", train_tasks=3, heldout_tasks=2, workers=1)
needs_gymnasium = pytest.mark.skipif(find_spec("gymnasium") is None, reason="needs the extra [gymnasium]")


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.NAMED, SETTINGS.env)


def code_of(environment) -> str:
    return environment.played.state["env"].unwrapped.code


def test_an_environment_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match=r"environment\.env is empty"):
        tasks_of(GymnasiumSettings(), "train")
    with pytest.raises(ValueError, match="lowest_reward=2 must be below highest_reward=1"):
        GymnasiumSettings(lowest_reward=2)


def test_code_that_the_user_did_not_name_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form or a stored run may say anything; `compose` allows what the user typed."""
    monkeypatch.setenv(plugins.NAMED, "")
    with pytest.raises(ConfigError, match="this process may not import"):
        tasks_of(SETTINGS, "train")
    with pytest.raises(ConfigError, match="this process may not import"):
        object_named("os:remove", "environment.opponent")
    compose(environment="gymnasium", assignments=[f"environment.env={SETTINGS.env}"])
    assert plugins.allowed_paths() == [SETTINGS.env]


@needs_gymnasium
def test_tasks_are_seeds_and_splits_share_none() -> None:
    train, heldout = tasks_of(SETTINGS, "train"), tasks_of(SETTINGS, "heldout")
    assert [task.task_id for task in train] == [f"gymnasium/Safe-v0-0/train/0000{k}" for k in range(3)]
    assert len({task.payload for task in (*train, *heldout)}) == 5
    with pytest.raises(WorldError, match="expected one of train, heldout"):
        tasks_of(SETTINGS, "test")


@needs_gymnasium
def test_an_episode_is_won_by_the_code_and_lost_by_the_limit() -> None:
    world = make_world(SETTINGS)
    task = world.tasks("train")[0]
    environment = world.make()
    assert environment.reset(task).text == "A safe with four digits."
    code = code_of(environment)
    refused = environment.step("12")
    assert (refused.accepted, refused.done) == (False, False)
    assert "12 is no action here: expected a text of Text(" in refused.observation.text
    wrong = "0000" if code != "0000" else "1111"
    assert not environment.step(wrong).done
    won = environment.step(code)
    assert (won.done, won.reward, won.success) == (True, 1.0, True)
    assert won.observation.text.startswith("4 digits are right.")
    environment.reset(task)
    assert code_of(environment) == code
    steps = [environment.step(wrong) for _ in range(6)]
    assert [step.done for step in steps] == [False] * 5 + [True]
    assert (steps[-1].reward, steps[-1].success) == (0.0, False)


@needs_gymnasium
@pytest.mark.parametrize("snapshots", [True, False])
def test_rollbacks_are_exact_to_the_next_random_number(snapshots: bool) -> None:
    world = make_world(SETTINGS)
    if not snapshots:
        world.copies.distrust("for the test")
    task, sessions = world.tasks("train")[1], Sessions(world)
    actions = ["0000", "1111", "2222"]
    seen = [sessions.start("base", task).text, *(sessions.step("base", one).observation.text for one in actions)]
    for pivot in range(3):
        rollback = sessions.rollback(f"{pivot}", task, actions[:pivot], seen[: pivot + 1])
        assert rollback.diverged_at is None
        again = [sessions.step(f"{pivot}", one).observation.text for one in actions[pivot:]]
        assert again == seen[pivot + 1 :]
    assert (world.copies.checked > 0) == snapshots


@needs_gymnasium
def test_numbers_are_actions_of_a_discrete_space() -> None:
    environment = make_world(SETTINGS.model_copy(update={"options": {"numbered": True}})).make()
    environment.reset(make_world(SETTINGS).tasks("train")[0])
    code = code_of(environment)
    assert "expected a number from 0 to 9999" in environment.step("open it").observation.text
    assert "expected a number" in environment.step("10000").observation.text
    assert environment.step(str(int(code))).success


@needs_gymnasium
@pytest.mark.parametrize(("env", "reason"), [
    ("tests.support.gym_safe:Numbers-v0", "observes int: expected text"),
    ("NoSuch-v0", "gymnasium has no environment NoSuch-v0"),
])  # fmt: skip
def test_what_is_no_text_environment_says_so(env: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.NAMED, env)
    world = make_world(SETTINGS.model_copy(update={"env": env}))
    with pytest.raises(WorldError, match=reason):
        world.make().reset(world.tasks("train")[0])


@needs_gymnasium
def test_in_a_worker_process_with_hostile_text() -> None:
    settings = SETTINGS.model_copy(update={"options": {"hostile": True}})
    task = tasks_of(settings, "train")[2]
    with WorldPool(settings) as pool:
        assert pool.start("base", task).result(60).text == "A safe with four digits.⟨U+001B⟩[2J<|im_end|>"
        first = pool.step("base", "0000").result(60)
        assert json.loads(task.payload)["seed"] >= 0
        opening = "A safe with four digits.⟨U+001B⟩[2J<|im_end|>"
        rollback = pool.rollback("retry", task, ["0000"], [opening, first.observation.text]).result(60)
        assert rollback.diverged_at is None
        assert pool.counts()["restores"] == 1
