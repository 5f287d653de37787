"""The real verifiers 0.4, turn by turn: an episode is a program with servers, and the policy has its one seat."""

import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments.base import tools_of
from r3l.environments.kinds import make_world
from r3l.environments.workers.sessions import Sessions
from r3l.errors import WorldError

pytestmark = pytest.mark.skipif(
    find_spec("verifiers") is None or version("verifiers") < "0.4", reason="needs verifiers 0.4 (make test-extras)"
)
ROOT = Path(__file__).parents[2]
GAMES = VerifiersSettings(env="tests.support.verifiers_tasksets", train_tasks=3, heldout_tasks=2, workers=1)


def call(number: int) -> str:
    return json.dumps({"calls": [{"name": "desk_open_drawer", "arguments": {"number": number}}]})


def say(answer: str) -> str:
    return json.dumps({"answer": answer})


@pytest.fixture(scope="module")
def world():
    return make_world(GAMES)


@pytest.fixture
def sessions(world, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the tools' process, as a worker's children have it
    sessions = Sessions(world)
    yield sessions
    sessions.close()


def first(world):
    task = world.tasks("train")[0]
    return task, int(json.loads(task.payload)["data"]["answer"].split()[1])


@pytest.mark.timeout(50)  # a close that waits for a request nobody answers takes 60 s more than the 7 of this test
def test_tasks_are_the_rows_of_a_taskset_without_an_end(world) -> None:
    assert (len(world.tasks("train")), len(world.tasks("heldout"))) == (3, 2)
    assert world.system_prompt() == "Guess well."
    assert world.data("train")[-16:] != world.data("heldout")[-16:]
    with pytest.raises(WorldError, match="expected one of train, heldout"):
        world.tasks("test")
    (tool,) = tools_of(world)
    assert tool["function"]["name"] == "desk_open_drawer"
    assert world.parse_reply(
        '<tool_call>{"name": "desk_open_drawer", "arguments": {"number": 2}}</tool_call>'
    ).action == call(2)


def test_tools_are_called_and_a_rollback_takes_the_actions_again(world, sessions) -> None:
    task, number = first(world)
    seen = [sessions.start("base", task).text]
    assert seen == [f"Guess {number}."], "the system prompt is shown once"
    step = sessions.step("base", call(number))
    assert (step.observation.text, step.observation.role) == (f"key {number}, opening 1", "tool")
    seen.append(step.observation.text)
    won = sessions.step("base", say(f"key {number}"))
    assert (won.done, won.reward, won.success) == (True, 1.0, True)
    rollback = sessions.rollback("retry", task, [call(number)], seen)
    assert (rollback.diverged_at, rollback.role) == (None, "tool")
    assert sessions.step("retry", call(number)).observation.text == f"key {number}, opening 2"
    late = sessions.step("retry", say(f"key {number}"))
    assert (late.done, late.reward, late.success) == (True, 0.5, False), "the sum of the task's rewards"


def test_a_user_of_the_environment_speaks_and_a_condition_ends_the_episode(world, sessions) -> None:
    task, number = first(world)
    sessions.start("base", task)
    step = sessions.step("base", say("what?"))
    assert (step.observation.text, step.observation.role, step.done) == ("Once more.", "user", False)
    assert sessions.step("base", say(f"key {number}")).reward == 1.0
    sessions.start("base", task)
    ended = sessions.step("base", say("I give up."))
    assert (ended.done, ended.reward, ended.observation.text) == (True, 0.5, "The episode has ended: given_up.")


def test_an_episode_that_is_left_gives_way_to_the_next_one_and_a_fault_fails_its_attempt(world, sessions) -> None:
    task, _ = first(world)
    sessions.start("base", task)
    sessions.step("base", call(1))
    sessions.start("base", task)
    assert sessions.step("base", call(2)).observation.text == "key 2, opening 1", "nothing of the one before"
    sessions.start("base", task)
    sessions.step("base", say("fault"))
    with pytest.raises(WorldError, match="no such reward"):
        sessions.step("base", say("fault"))
    assert sessions.start("base", task).text.startswith("Guess ")


def module_of(monkeypatch, name: str, **attributes: object) -> str:
    from tests.support import verifiers_tasksets

    shared = {one: getattr(verifiers_tasksets, one) for one in verifiers_tasksets.__all__}
    module = ModuleType(name)
    for one, value in (shared | attributes).items():
        setattr(module, one, value)
    module.__all__ = list(shared | attributes)
    monkeypatch.setitem(sys.modules, name, module)
    return name


def test_what_can_not_be_played_says_why(monkeypatch) -> None:
    import verifiers.v1 as vf

    from r3l.environments.verifiers.agent import PolicyHarness
    from r3l.environments.verifiers.tasksets import load_taskset

    class Two(vf.EnvConfig):
        left: vf.AgentConfig = vf.AgentConfig()
        right: vf.AgentConfig = vf.AgentConfig()

    class Duel(vf.Env[Two]):
        async def run(self, task, agents): ...

    class Own(PolicyHarness): ...

    reasons = {
        module_of(monkeypatch, "duel", Player=Duel): "has the seats left, right: expected one",
        module_of(monkeypatch, "own_program", Own=Own): "is played by a program of its own",
        "no_such_taskset": "can't load no_such_taskset",
    }
    for name, reason in reasons.items():
        with pytest.raises(WorldError, match=reason):
            load_taskset(GAMES.model_copy(update={"env": name}))
    with pytest.raises(WorldError, match="colour"):
        load_taskset(GAMES.model_copy(update={"options": {"colour": 1}}))
    from tests.support.verifiers_tasksets import Game

    monkeypatch.setattr(Game, "NEEDS_CONTAINER", True)
    with pytest.raises(WorldError, match="needs a container"):
        load_taskset(GAMES)
