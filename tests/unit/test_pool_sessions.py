"""What the sessions of one worker remember: a rollback finds the states of every earlier session, not only of the last
one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from r3l.config.environments import HouseholdSettings
from r3l.environments.base import Observation, Step
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.workers.sessions import Sessions
from r3l.records import Task
from tests.support import records

SETTINGS = HouseholdSettings(level="easy", train_tasks=1)


def test_sessions_that_begin_alike_do_not_forget_each_other():
    """Three episodes share their first two actions and then part; each is rolled back to each of its turns without one
    replayed step."""
    world = HouseholdWorld(SETTINGS)
    (task,) = world.tasks("train")
    sessions = Sessions(world)
    places = ("go to cabinet 1", "go to fridge 1", "go to microwave 1")
    played = {}
    for name in places:
        actions = ["look", "go to countertop 1", name, "look"]
        seen = [sessions.start(name, task).text, *(sessions.step(name, action).observation.text for action in actions)]
        sessions.end(name)
        played[name] = (actions, seen)
    assert sessions.counts == {"steps": 12}
    for name, (actions, seen) in played.items():
        for pivot in range(1, 5):
            assert sessions.rollback(name, task, actions[:pivot], seen[: pivot + 1]).diverged_at is None
            sessions.end(name)
    assert (sessions.counts["restores"], sessions.counts["replays"], sessions.counts["steps"]) == (12, 0, 12)


class Scripted:
    """A world that answers an action as `answers` says at that moment, else with seed and actions so far."""

    def __init__(self) -> None:
        self.opening = "begin"
        self.answers: dict[str, tuple[str, bool]] = {}

    def make(self) -> Playing:
        return Playing(self)


class Playing:
    def __init__(self, world: Scripted) -> None:
        self.world = world
        self.past: list[str] = []

    def reset(self, task: Task) -> Observation:
        self.past = [str(task.seed)]
        return Observation(self.world.opening)

    def step(self, action: str) -> Step:
        self.past.append(action)
        text, done = self.world.answers.get(action, (" ".join(self.past), False))
        return Step(Observation(text), done=done)

    def snapshot(self) -> list[str]:
        return list(self.past)

    def restore(self, handle: list[str]) -> None:
        self.past = list(handle)

    def close(self) -> None: ...


TASK = records.task(0, seed=1)


@pytest.fixture
def world() -> Scripted:
    return Scripted()


@pytest.fixture
def sessions(world: Scripted) -> Sessions:
    return Sessions(world)


def played(sessions: Sessions, task: Task, *actions: str) -> list[str]:
    """What an episode saw."""
    seen = [sessions.start("played", task).text, *(sessions.step("played", one).observation.text for one in actions)]
    sessions.end("played")
    return seen


@pytest.mark.parametrize("known", [True, False])
def test_a_rollback_goes_no_further_than_the_end_of_its_episode(world, sessions, known):
    world.answers["stop"] = ("over", True)
    if known:
        played(sessions, TASK, "stop")
    back = sessions.rollback("back", TASK, ["stop", "on"], ["begin", "over", "1 stop on"])
    assert (back.diverged_at, back.exact, back.observations) == (1, False, ["begin", "over"])


@pytest.mark.parametrize("known", [True, False])
def test_a_rollback_compares_every_observation_the_opening_too(world, sessions, known):
    if known:
        played(sessions, TASK, "look")
    assert sessions.rollback("back", TASK, ["look"], ["begin", "1 look"]).diverged_at is None
    assert sessions.rollback("back", TASK, ["look"], ["begin", "2 look"]).diverged_at == 1
    assert sessions.rollback("back", TASK, ["look"], ["begin again", "1 look"]).diverged_at == 0


def test_states_of_one_seed_are_not_those_of_another(sessions):
    played(sessions, TASK, "look")
    assert sessions.rollback("back", replace(TASK, seed=2), ["look"], ["begin", "2 look"]).diverged_at is None


def test_a_state_is_that_of_its_answer_and_of_its_opening(world, sessions):
    played(sessions, TASK, "look")
    world.answers["look"] = ("nothing", False)
    assert played(sessions, TASK, "look", "on") == ["begin", "nothing", "1 look on"]
    assert sessions.rollback("back", TASK, ["look"], ["begin", "nothing"]).diverged_at is None
    world.opening, world.answers["look"] = "begin again", ("less", False)
    assert sessions.rollback("back", TASK, ["look"], ["begin again", "less"]).diverged_at is None


def test_a_malformed_turn_is_no_action(sessions):
    back = sessions.rollback("back", TASK, ["", "look"], ["begin", "malformed", "1 look"])
    assert (back.diverged_at, back.observations) == (None, ["begin", "malformed", "1 look"])
