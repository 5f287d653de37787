"""Controls: retries from other pivots and under other guidance, on the household world with scripted replies."""

import random

import pytest

from r3l.config.environments import HouseholdSettings
from r3l.config.methods import R3LSettings
from r3l.environments.household.engine import engine_of
from r3l.environments.household.oracle import oracle_pivot
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.workers.pool import WorldPool
from r3l.exploration.explorer import Explorer, Limits
from r3l.exploration.stages import base_stage, distilled_stage, reflections_stage, retries_stage
from r3l.lab.warm_start.household.player import play
from r3l.methods import plan
from tests.support.fakes import CharChat, ScriptedEngine
from tests.support.records import report

SETTINGS = HouseholdSettings(level="easy", train_tasks=40, max_turns=16)
ASKED = 2  # the pivot that every reflection names


@pytest.fixture(scope="module")
def world():
    return HouseholdWorld(SETTINGS)


def explored(world, **control):
    """(bases, retries, prompts of the retries) of two tasks that a forgetful player loses."""
    tasks = [task for task in world.tasks("train") if task.task_type.startswith("pick_heat")][:2]
    tasks = [
        type(task)(**{**{name: getattr(task, name) for name in task.__dataclass_fields__}, "task": slot})
        for slot, task in enumerate(tasks)
    ]
    actions = [
        [*play(engine_of(task.payload), random.Random(0), 16, forgets=1.0), *["look"] * 16][:16] for task in tasks
    ]
    prompts = {}

    def script(request, prompt):
        slot = int(request.split("task=")[1].split("/")[0])
        if "reflection" in request:
            return report(ASKED, advice=f"advice of task {slot}")
        if "retry" in request:
            prompts.setdefault(slot, prompt)
        turn = int(request.rsplit("turn=", 1)[1])
        return f"<think>t</think><action>{actions[slot][turn]}</action>"

    sampled = plan(R3LSettings(**control), 2)
    with WorldPool(SETTINGS, workers=1) as pool:
        explorer = Explorer(world, pool, ScriptedEngine(script), CharChat(), "p", Limits(16, 512, 1.0))
        bases = base_stage(explorer, tasks, sampled)
        reflections = reflections_stage(explorer, tasks, sampled, bases, bases, 0)
        retries = retries_stage(explorer, tasks, sampled, bases, bases, reflections)
    return tasks, actions, bases, retries, prompts


def test_by_default_a_retry_takes_its_own_pivot_and_guidance(world):
    _, _, _, retries, prompts = explored(world)
    assert [one.trajectory.pivot_turn for one in retries] == [ASKED, ASKED]
    assert all(f"advice of task {slot}" in prompts[slot] for slot in (0, 1))


def test_shuffled_guidance_is_another_tasks(world):
    _, _, _, retries, prompts = explored(world, guidance="shuffled")
    assert [one.trajectory.pivot_turn for one in retries] == [ASKED, ASKED]
    assert "advice of task 1" in prompts[0]
    assert "advice of task 0" not in prompts[0]


def test_no_guidance_is_the_base_context_as_it_was(world):
    _, _, bases, retries, prompts = explored(world, guidance="none")
    assert all("advice" not in prompt for prompt in prompts.values())
    assert [one.turns[0].context_ids for one in retries] == [base.turns[ASKED].context_ids for base in bases]
    stitched, events = distilled_stage(bases, retries)
    assert events == []
    assert all(one.trajectory.pivot_turn == ASKED for one in stitched)


def test_a_retry_may_take_the_oracles_pivot(world):
    tasks, actions, _, retries, prompts = explored(world, pivot="oracle")
    expected = [oracle_pivot(task, played).pivot for task, played in zip(tasks, actions, strict=True)]
    assert [one.trajectory.pivot_turn for one in retries] == expected
    assert expected != [ASKED, ASKED]
    assert "advice of task 0" in prompts[0]
    assert [one.trajectory.pivot_asked for one in retries] == [ASKED, ASKED]  # what the reflection said stays on record


def test_the_turn_before_the_reflections_pivot(world, monkeypatch):
    _, _, _, retries, prompts = explored(world, pivot="turn_before")
    assert [one.trajectory.pivot_turn for one in retries] == [ASKED - 1, ASKED - 1]
    assert [one.trajectory.pivot_asked for one in retries] == [ASKED, ASKED]
    assert "advice of task 0" in prompts[0]
    monkeypatch.setattr("tests.unit.test_controls.ASKED", 0)
    assert [one.trajectory.pivot_turn for one in explored(world, pivot="turn_before")[3]] == [
        0,
        0,
    ]  # before the first there is none


def test_random_pivots_are_drawn_by_seed(world):
    first, again = ([one.trajectory.pivot_turn for one in explored(world, pivot="random")[3]] for _ in range(2))
    assert first == again
    assert all(0 <= pivot < 16 for pivot in first)
