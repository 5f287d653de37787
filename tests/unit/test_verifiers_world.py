"""The real verifiers, turn by turn: rows, rubric, tools, rollbacks by copy and by replay."""

import json
import re
import signal
from importlib.metadata import version
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments import make_world, tasks_of
from r3l.environments.base import tools_of
from r3l.environments.verifiers.conversation import new_messages, opening_text
from r3l.environments.verifiers.described import rows_of
from r3l.environments.workers.pool import WorldPool
from r3l.environments.workers.sessions import Sessions
from r3l.errors import ConfigError, WorldError

GUESS = VerifiersSettings(env="tests.support.verifiers_games", heldout_tasks=3, workers=1)
HIDDEN = GUESS.model_copy(update={"options": {"game": "hidden"}})
DRAWERS = GUESS.model_copy(update={"options": {"game": "drawers"}, "heldout_tasks": 1})
needs_verifiers = pytest.mark.skipif(
    find_spec("verifiers") is None or version("verifiers") >= "0.4", reason="needs the extra [verifiers], below 0.4"
)


def task_of(world, answer: str):
    return next(task for task in [*world.tasks("train"), *world.tasks("heldout")] if f'"{answer}"' in task.payload)


def call(number: int) -> str:
    return json.dumps({"calls": [{"name": "open_drawer", "arguments": {"number": number}}]})


def test_an_opening_and_what_is_added_as_texts() -> None:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    assert opening_text(prompt, "s") == "q"
    assert opening_text(prompt, "other") == "System: s\n\nUser: q"
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert new_messages(prompt, [*prompt, *parts]) == parts
    assert opening_text(parts, "") == "a\nb"
    with pytest.raises(WorldError, match="rewrites its conversation"):
        new_messages(prompt, prompt[1:])
    with pytest.raises(WorldError, match="a part of type 'image_url'"):
        opening_text([{"role": "user", "content": [{"type": "image_url"}]}], "")


def test_an_environment_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match=r"environment\.env is empty"):
        tasks_of(VerifiersSettings(), "train")


@pytest.mark.parametrize("prompt", [None, 7, [{"role": "user", "content": None}], [None], [{"role": "user"}]], ids=repr)
def test_a_row_without_a_prompt_is_named_before_anything_is_played(prompt) -> None:
    good = {"prompt": [{"role": "user", "content": "Guess."}], "answer": "4"}
    rows = SimpleNamespace(to_list=lambda: [good, good | {"prompt": prompt}])
    with pytest.raises(WorldError, match=r"row 1 of the data set: its prompt is .*, expected a text or messages"):
        rows_of(lambda: rows)
    assert rows_of(lambda: SimpleNamespace(to_list=lambda: [good, {"answer": "5"}, {"prompt": "Say it."}]))[0] == good


@pytest.mark.skipif(find_spec("verifiers") is not None, reason="verifiers is installed here")
def test_without_the_package_the_preflight_says_what_to_install() -> None:
    with pytest.raises(WorldError, match=r"pip install 'r3l\[verifiers\]'"):
        tasks_of(GUESS, "train")


@needs_verifiers
def test_tasks_are_the_rows_parted_where_there_is_no_evaluation_set() -> None:
    world = make_world(GUESS)
    train, heldout = world.tasks("train"), world.tasks("heldout")
    assert (len(train), len(heldout)) == (6, 3)
    assert len({task.payload for task in (*train, *heldout)}) == 9
    assert world.system_prompt() == "Guess well."
    assert tools_of(world) == ()
    assert re.fullmatch(r"tests\.support\.verifiers_games-0, 6 rows, [0-9a-f]{16}", world.data("train"))
    assert world.data("train")[-16:] != world.data("heldout")[-16:]
    with pytest.raises(WorldError, match="expected one of train, heldout"):
        world.tasks("test")


@needs_verifiers
def test_an_episode_ends_with_the_rubrics_reward() -> None:
    kept = signal.getsignal(signal.SIGTERM)
    world = make_world(GUESS)
    environment = world.make()
    assert signal.getsignal(signal.SIGTERM) is kept
    task = task_of(world, "7")
    assert environment.reset(task).text == "Guess a number from 1 to 9. (Round 7)"
    assert environment.step("3").observation.text == "Hint 1: higher."
    won = environment.step("7")
    assert (won.observation.text, won.done, won.reward, won.success) == ("Right.", True, 0.5, False)
    environment.reset(task)
    best = environment.step("7")
    assert (best.reward, best.success) == (1.0, True)
    environment.reset(task)
    steps = [environment.step("9") for _ in range(6)]
    assert [step.done for step in steps] == [False] * 5 + [True]
    assert (steps[-1].reward, steps[-1].observation.text) == (0.0, "The episode has ended: max_turns_reached.")


@needs_verifiers
@pytest.mark.parametrize(("settings", "exact"), [(GUESS, True), (HIDDEN, False)], ids=["state", "hidden"])
def test_rollbacks_are_exact_whether_or_not_the_state_can_be_copied(settings: VerifiersSettings, exact: bool) -> None:
    world = make_world(settings)
    task, sessions = task_of(world, "7"), Sessions(world)
    actions = ["3", "9", "4"]
    seen = [sessions.start("base", task).text, *(sessions.step("base", one).observation.text for one in actions)]
    assert seen[1:] == ["Hint 1: higher.", "Hint 2: lower.", "Hint 3: higher."]
    for pivot in (1, 2, 1):
        rollback = sessions.rollback(f"{pivot}", task, actions[:pivot], seen[: pivot + 1])
        assert rollback.diverged_at is None
        assert sessions.step(f"{pivot}", "1").observation.text == f"Hint {pivot + 1}: higher."
        assert sessions.step(f"{pivot}", "7").reward == pytest.approx(1 / (pivot + 2))
        sessions.end(f"{pivot}")
    assert (world.copies.why == "") == exact
    assert (world.copies.checked > 0) == exact


@needs_verifiers
def test_tools_are_called_and_their_state_is_rolled_back() -> None:
    world = make_world(DRAWERS)
    (tool,) = tools_of(world)
    assert tool["function"]["name"] == "open_drawer"
    assert list(tool["function"]["parameters"]["properties"]) == ["number"]
    assert world.parse_reply(
        '<tool_call>{"name": "open_drawer", "arguments": {"number": 2}}</tool_call>'
    ).action == call(2)
    assert not world.parse_reply('<tool_call>{"name": "burn"}</tool_call>').valid
    task, sessions = task_of(world, "key 2"), Sessions(world)
    seen = [sessions.start("base", task).text]
    for number, text in ((1, "key 1, opening 1"), (2, "key 2, opening 2")):
        step = sessions.step("base", call(number))
        assert (step.observation.text, step.observation.role) == (text, "tool")
        seen.append(text)
    won = sessions.step("base", json.dumps({"answer": "It is key 2."}))
    assert (won.done, won.reward) == (True, 1.0)
    rollback = sessions.rollback("retry", task, [call(1)], seen[:2])
    assert (rollback.diverged_at, rollback.role) == (None, "tool")
    assert sessions.step("retry", call(1)).observation.text == "key 1, opening 2"
    wrong = sessions.step("retry", json.dumps({"answer": "Nothing."}))
    assert (wrong.done, wrong.reward) == (True, 0.0)
    listed = make_world(DRAWERS.model_copy(update={"tools_shown": "prompt"}))
    assert tools_of(listed) == ()
    assert '"name": "open_drawer"' in listed.system_prompt()


@needs_verifiers
@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ({"env": "no-such-environment"}, "can't load no-such-environment.*Could not import"),
        ({"options": {"game": "group"}}, "EnvGroup: expected a MultiTurnEnv"),
        ({"options": {"colour": 1}}, "unexpected keyword argument 'colour'"),
    ],
)
def test_what_can_not_be_played_says_why(update: dict, reason: str) -> None:
    with pytest.raises(WorldError, match=reason):
        make_world(GUESS.model_copy(update=update)).tasks("train")


@needs_verifiers
def test_an_episode_and_its_rollback_work_in_a_worker_process() -> None:
    task = task_of(make_world(GUESS), "7")
    with WorldPool(GUESS) as pool:
        opening = pool.start("base", task).result(300).text
        first = pool.step("base", "3").result(60)
        rollback = pool.rollback("retry", task, ["3"], [opening, first.observation.text]).result(60)
        assert rollback.diverged_at is None
        assert pool.counts()["restores"] == 1
