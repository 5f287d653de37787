"""A client of a real OpenEnv server, which the test starts on a free port."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from r3l.config.environments.adapters import OpenEnvSettings
from r3l.environments import make_world, tasks_of
from r3l.environments.adapters.openenv import OpenEnvWorld
from r3l.environments.workers.pool import WorldPool
from r3l.environments.workers.sessions import Sessions
from r3l.errors import ServerAway, WorldError

needs_openenv = pytest.mark.skipif(find_spec("openenv") is None, reason="needs the extra [openenv]")
ROOT = Path(__file__).parents[2]


@contextmanager
def dial(sessions: int) -> Iterator[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.openenv_dial", str(sessions)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    with server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[int], str]]:
    with ExitStack() as servers:
        yield lambda sessions: servers.enter_context(dial(sessions))


@pytest.fixture(scope="module")
def url(start: Callable[[int], str]) -> str:
    return start(8)


def settings(url: str, **update: object) -> OpenEnvSettings:
    known = {"observation_field": "text", "train_tasks": 4, "heldout_tasks": 2, "workers": 1, "lowest_reward": -1.0}
    return OpenEnvSettings(url=url, **(known | update))


@contextmanager
def playing(world: OpenEnvWorld) -> Iterator[Sessions]:
    sessions = Sessions(world)
    try:
        yield sessions
    finally:
        sessions.close()


def searched(sessions: Sessions, name: str) -> list:
    """Steps of a search by halves, to the end."""
    low, high, steps = 0, 9, []
    while not steps or not steps[-1].done:
        middle = (low + high) // 2
        steps.append(sessions.step(name, str(middle)))
        low, high = (middle + 1, high) if steps[-1].observation.text.startswith("higher") else (low, middle - 1)
    return steps


def test_an_action_may_be_a_json_object() -> None:
    world = make_world(OpenEnvSettings(action_field="", reply_format="text"))
    assert world.parse_reply('{"x": 1}').valid
    for reply in ("[1]", "turn left", "", "[" * 100_000):
        assert not world.parse_reply(reply).valid


@pytest.mark.skipif(find_spec("openenv") is not None, reason="openenv is installed here")
def test_without_the_package_the_preflight_says_what_to_install() -> None:
    with pytest.raises(WorldError, match=r"pip install 'r3l\[openenv\]'"):
        tasks_of(OpenEnvSettings(), "train")


@needs_openenv
def test_an_episode_its_reward_and_an_action_that_is_none(url: str) -> None:
    world = make_world(settings(url))
    with playing(world) as sessions:
        for task in world.tasks("train"):
            assert sessions.start("a", task).text == "A dial of 1 digits.⟨U+001B⟩[2J"
            steps = searched(sessions, "a")
            gained = 1.0 - 0.25 * (len(steps) - 1)
            assert (steps[-1].observation.text, steps[-1].reward) == ("open", (gained + 1) / 2)
            assert steps[-1].success == (gained == 1.0)
    raw = make_world(settings(url, action_field="", observation_characters=1000))
    with playing(raw) as sessions:
        sessions.start("b", raw.tasks("train")[0])
        refused = sessions.step("b", json.dumps({"turn": 1}))
        assert not refused.accepted
        assert "This is no action here" in refused.observation.text
        assert sessions.step("b", json.dumps({"message": "5"})).accepted


@needs_openenv
def test_a_rollback_takes_the_actions_again_and_reads_the_same(url: str) -> None:
    world = make_world(settings(url, options={"digits": 3}))
    task, actions = world.tasks("train")[0], ["1", "2", "998"]
    with playing(world) as sessions:
        seen = [sessions.start("base", task).text, *(sessions.step("base", one).observation.text for one in actions)]
        assert seen[0].startswith("A dial of 3 digits")
        for pivot in range(3):
            rollback = sessions.rollback(f"{pivot}", task, actions[:pivot], seen[: pivot + 1])
            assert rollback.diverged_at is None
            again = [sessions.step(f"{pivot}", one).observation.text for one in actions[pivot:]]
            assert again == seen[pivot + 1 :]
        assert sessions.counts["restores"] == 0
        assert sessions.rollback("other", task, ["1"], [seen[0], "otherwise"]).diverged_at == 1


@needs_openenv
def test_a_broken_environment_is_a_fault_and_the_next_episode_has_a_new_session(url: str) -> None:
    world = make_world(settings(url))
    with playing(world) as sessions:
        task = world.tasks("train")[0]
        sessions.start("a", task)
        with pytest.raises(WorldError, match="the dial broke"):
            sessions.step("a", "break")
        sessions.end("a")
        assert sessions.start("b", task).text.startswith("A dial")
        assert searched(sessions, "b")[-1].done


@needs_openenv
def test_a_server_without_room_and_no_server_at_all(start: Callable[[int], str]) -> None:
    narrow = make_world(settings(start(1)))
    with playing(narrow) as sessions:
        task = narrow.tasks("train")[0]
        sessions.start("a", task)
        with pytest.raises(WorldError, match="larger max_concurrent_envs"):
            sessions.start("b", task)
    away = make_world(settings("http://127.0.0.1:1"))
    with playing(away) as sessions, pytest.raises(ServerAway, match="is it running there"):
        sessions.start("a", away.tasks("train")[0])
    missing = make_world(settings(start(2)).model_copy(update={"observation_field": "words"}))
    with playing(missing) as sessions, pytest.raises(WorldError, match="has no field 'words'"):
        sessions.start("a", missing.tasks("train")[0])


@needs_openenv
def test_in_a_worker_process_many_episodes_at_once(url: str) -> None:
    chosen = settings(url)
    tasks = tasks_of(chosen, "train")[:3]
    with WorldPool(chosen) as pool:
        openings = [pool.start(f"{k}", task) for k, task in enumerate(tasks)]
        assert {opening.result(120).text for opening in openings} == {"A dial of 1 digits.⟨U+001B⟩[2J"}
        steps = [pool.step(f"{k}", "5").result(60) for k in range(3)]
        seen = ["A dial of 1 digits.⟨U+001B⟩[2J", steps[0].observation.text]
        if not steps[0].done:
            assert pool.rollback("retry", tasks[0], ["5"], seen).result(60).diverged_at is None
