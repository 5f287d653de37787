"""What environments of others give back: a number, a text and a flag that can be stored, or one failed attempt that
says what was got. No answer ends the worker, or another episode."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from r3l import plugins
from r3l.environments.base import Reply, Verdict
from r3l.environments.kinds import make_world
from r3l.environments.outside import reply_of, tasks_of
from r3l.environments.workers.pool import WorldPool
from r3l.errors import WorldError
from r3l.exploration.episode import Start, play
from tests.support.fakes import explorer
from tests.support.odd_world import FINE, PATH, RAISED, REFUSED, TAKEN, OddSettings, OddWorld

TASKS = OddWorld(OddSettings()).tasks("train")


@pytest.fixture(scope="module")
def pool() -> Iterator[WorldPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.NAMED, PATH)
        with WorldPool(OddSettings()) as pool:
            pool.start("other", TASKS[1]).result(60)
            yield pool
            assert pool.step("other", "go on").result(60) == FINE  # through all that the others did
            assert pool.counts()["restarts"] == 0


def stepped(pool: WorldPool, action: str):
    pool.start(action, TASKS[0]).result(60)
    return pool.step(action, action).result(60)


@pytest.mark.parametrize(("action", "message"), [(name, message) for name, (_, message) in (REFUSED | RAISED).items()])
def test_what_is_no_answer_fails_its_own_attempt_and_names_value_and_type(pool: WorldPool, action: str, message: str):
    with pytest.raises(WorldError) as raised:
        stepped(pool, action)
    assert message in str(raised.value)
    str(raised.value).encode()  # what is stored as the row's reason


@pytest.mark.parametrize(("action", "taken"), [(name, taken) for name, (_, taken) in TAKEN.items()])
def test_what_can_be_stored_is_taken_in_pythons_own_types(pool: WorldPool, action: str, taken: object):
    assert stepped(pool, action) == taken


def test_oracles_and_hints_are_held_to_the_same(pool: WorldPool):
    assert pool.ask_oracle("o", TASKS[0], ["a"], ["b", "c"]).result(60) == Verdict(1, "why")
    with pytest.raises(WorldError, match=r"a verdict's text: expected text, got None \(NoneType\)"):
        pool.ask_oracle("o", TASKS[0], ["odd"], ["b", "c"]).result(60)
    assert pool.ask_hints("h", TASKS[0]).result(60) == ["vague"]
    with pytest.raises(WorldError, match=r"a hint: expected text, got None \(NoneType\)"):
        pool.ask_hints("h", TASKS[1]).result(60)


@pytest.mark.parametrize("action", ["nan", "no reward", "number", "unspeakable"])
def test_such_an_attempt_is_one_row_without_reward(pool: WorldPool, action: str):
    walker = explorer(lambda name, prompt: f"<think>a</think><action>{action}</action>")
    session = f"iteration=0/task=0/base={action}"
    pool.start(session, TASKS[0]).result(60)
    begun = Start(session, 0, 0, 0, "What shall I answer?", [1], [1], standing=0.5)
    played = asyncio.run(play(replace(walker, world=make_world(OddSettings()), pool=pool), begun, "base"))
    assert (played.status, played.reward, len(played.turns)) == ("environment_error", 0.0, 1)
    assert (REFUSED | RAISED)[action][1] in played.reason


class Careless(OddWorld):
    """Its parser raises, or returns anything."""

    def parse_reply(self, text: str):
        return {"list": [], "none": Reply(True, None), "empty": Reply(True, "")}.get(text) if text else text[0]


@pytest.mark.parametrize(("text", "error"), [
    ("", "Invalid reply: it can't be read (IndexError: string index out of range)."),
    ("list", "Invalid reply: it can't be read (WorldError: expected a Reply, got [] (list))."),
    ("none", "Invalid reply: it can't be read (WorldError: action: expected text, got None (NoneType))."),
    ("empty", "Invalid reply: it gives no action."),
])  # fmt: skip
def test_a_reply_is_a_turn_whatever_the_worlds_parser_makes_of_it(text: str, error: str):
    assert reply_of(Careless(OddSettings()), text) == Reply(False, "", error)


@pytest.mark.parametrize(("wrong", "message"), [
    ({"payload": None}, r"task 1, payload: expected text, got None \(NoneType\)"),
    ({"task_type": 3}, r"task 1, task_type: expected text, got 3 \(int\)"),
    ({"seed": 2**63}, r"task 1, seed: expected a whole number of 64 bits, got 9223372036854775808 \(int\)"),
    ({"seed": 0.5}, r"task 1, seed: .* got 0.5 \(float\)"),
])  # fmt: skip
def test_a_task_that_can_not_be_stored_is_refused_with_its_place(wrong: dict, message: str):
    with pytest.raises(WorldError, match=message):
        tasks_of([TASKS[0], replace(TASKS[1], **wrong)])
    with pytest.raises(WorldError, match=r"task 0: expected a Task, got \{\} \(dict\)"):
        tasks_of([{}])


def test_a_tasks_texts_and_numbers_become_pythons_own():
    [task] = tasks_of([replace(TASKS[0], seed=np.int64(7), task_id="half \ud800")])
    assert (task.seed, type(task.seed), task.task_id) == (7, int, "half ⟨U+D800⟩")
