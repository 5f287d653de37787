"""Copies of episodes: exact, drawn from numbers of their own, held against replays, and given up where they are not."""

import random
import threading
from dataclasses import replace

import numpy as np
import pytest

from r3l.environments.adapters.episodes import CHECKED, CopiedEnvironment, Copies
from r3l.environments.adapters.texts import clean
from r3l.environments.base import Observation, Step
from r3l.environments.workers.sessions import Sessions
from r3l.errors import WorldError
from tests.support.fakes import CorridorWorld
from tests.support.records import corridor_task as task


class Dice(CopiedEnvironment):
    """Each action adds one roll of either generator."""

    def begin(self, task):
        return [], Observation("rolls: none")

    def act(self, state, action):
        state.append(random.randrange(100) + 100 * int(np.random.randint(100)))
        return Step(Observation(f"rolls: {state}"))


class Outside(CopiedEnvironment):
    """What an episode has done lies in the environment; its state is only a number that names it."""

    def __init__(self, copies, kept):
        super().__init__(copies)
        self.kept = kept

    def begin(self, task):
        name = len(self.kept)
        self.kept[name] = 0
        return [name], Observation("0")

    def act(self, state, action):
        self.kept[state[0]] += int(action)
        return Step(Observation(str(self.kept[state[0]])))


class Locked(Dice):
    def begin(self, task):
        return [threading.Lock()], Observation("locked")

    def act(self, state, action):
        return Step(Observation(action))


class Clock(CopiedEnvironment):
    """It answers otherwise each time, whatever its seed."""

    ticks = iter(range(10**6))

    def begin(self, task):
        return [], Observation("start")

    def act(self, state, action):
        return Step(Observation(str(next(self.ticks))))


def played(environment, actions, about=None) -> list[str]:
    return [environment.reset(about or task()).text, *(environment.step(one).observation.text for one in actions)]


def test_each_episode_draws_its_own_numbers_whatever_is_drawn_meanwhile():
    first, second = Dice(Copies()), Dice(Copies())
    alone = played(first, "abc")
    outer = random.getstate()
    first.reset(task())
    second.reset(replace(task(), seed=99))
    mixed = [first.step("a").observation.text]
    random.seed(outer[1][0])
    second.step("a")
    mixed += [first.step("b").observation.text, first.step("c").observation.text]
    assert mixed == alone[1:]
    assert played(second, "abc", replace(task(), seed=99)) != alone


def test_drawing_in_an_episode_changes_nothing_outside():
    random.seed(5)
    expected = [random.random(), random.random()]
    random.seed(5)
    got = [random.random()]
    played(Dice(Copies()), "abc")
    assert [*got, random.random()] == expected


def test_a_copy_goes_on_as_the_episode_did_and_is_held_against_a_replay_at_first():
    environment = Dice(Copies())
    environment.reset(task())
    environment.step("a")
    handle = environment.snapshot()
    expected = [environment.step("b"), environment.step("c")]
    for _ in range(CHECKED + 2):
        environment.restore(handle)
        assert [environment.step("b"), environment.step("c")] == expected
    assert environment.copies == Copies(checked=CHECKED)


def test_what_a_copy_does_not_reach_is_seen_and_replayed_from_then_on(caplog):
    environment = Outside(Copies(), {})
    environment.reset(task())
    environment.step("1")
    handle = environment.snapshot()
    environment.step("10")  # the copy's number still names the episode that this adds to
    environment.restore(handle)
    assert environment.step("1").observation.text == "2"
    assert "a copy answered otherwise" in environment.copies.why
    assert "rollbacks take the actions again" in caplog.text
    assert environment.snapshot() is None
    environment.restore(handle)  # an old handle: its actions are taken again
    assert environment.step("1").observation.text == "2"


class OutsideWorld(CorridorWorld):
    def __init__(self):
        self.copies, self.kept = Copies(), {}

    def make(self):
        return Outside(self.copies, self.kept)


def test_sessions_roll_such_an_environment_back_exactly():
    sessions = Sessions(OutsideWorld())
    actions = ["1", "10", "100"]
    seen = [sessions.start("base", task()).text, *(sessions.step("base", one).observation.text for one in actions)]
    assert seen == ["0", "1", "11", "111"]
    for name in ("one", "two"):
        rollback = sessions.rollback(name, task(), actions[:2], seen[:3])
        assert rollback.observations == seen[:3]
        assert rollback.diverged_at is None
        assert sessions.step(name, "5").observation.text == "16"


def test_a_state_that_can_not_be_copied_is_replayed():
    environment = Locked(Copies())
    environment.reset(task())
    assert environment.snapshot() is None
    assert "cannot pickle" in environment.copies.why


def test_an_environment_that_answers_otherwise_each_time_is_not_rolled_back():
    environment = Clock(Copies())
    played(environment, "ab")
    handle = environment.snapshot()
    environment.copies.distrust("for the test")
    with pytest.raises(WorldError, match="gave another observation at turn 1"):
        environment.restore(handle)


def test_texts_are_cleaned_and_cut_in_the_middle():
    assert clean("a\r\nb\x1b[31m\u202e", 100) == "a\nb⟨U+001B⟩[31m⟨U+202E⟩"
    long = clean("x" * 500 + "y" * 500, 100)
    assert long == "x" * 50 + "\n[900 characters left out]\n" + "y" * 50
