"""On every real engine but ALFWorld's, which has its own test: an episode that is won, one that is lost, and a rollback
to each of their turns, by what the worker remembers and by taking the actions again, after which the episode goes on as
it did.
"""

import json
import random
import re
import shutil
from importlib.util import find_spec

import pytest

from r3l.config.environments import (
    EnvironmentSettings,
    HouseholdSettings,
    MathSettings,
    ScienceWorldSettings,
    WebShopSettings,
)
from r3l.environments.base import World
from r3l.environments.household.engine import HouseholdEngine
from r3l.environments.household.game import Game
from r3l.environments.household.solver import solve
from r3l.environments.kinds import make_world
from r3l.environments.workers.sessions import Sessions
from r3l.records import Task

Actions = list[str]


def of_household(world: World, task: Task) -> tuple[Actions, Actions]:
    """Lost: errands at random until no turn is left."""
    winning = solve(HouseholdEngine(Game.from_json(task.payload)))
    assert winning is not None
    rng, words = random.Random(0), sorted(set(re.findall(r"[a-z]+ \d+", world.make().reset(task).text)))
    return winning, [rng.choice(("go to", "open", "examine")) + " " + rng.choice(words) for _ in range(50)]


def of_webshop(world: World, task: Task) -> tuple[Actions, Actions]:
    """Lost: the first product that is found is bought, and it is another one."""
    environment = world.make()
    environment.reset(task)
    goal = environment.shop.goals[json.loads(task.payload)["goal"]]  # type: ignore[attr-defined]
    found = environment.step("search[red shoe]").observation.text
    other = next(
        asin
        for asin in re.findall(r"\[button\] (B\w{9}) ", found, re.IGNORECASE)
        if asin.lower() != goal.product.asin.lower()
    )
    return (
        [
            f"search[{goal.instruction}]",
            f"click[{goal.product.asin}]",
            *(f"click[{value}]" for _, value in goal.options),
            "click[Buy Now]",
        ],
        ["search[red shoe]", f"click[{other}]", "click[Features]", "click[< Prev]", "click[Buy Now]"],
    )


def of_math(world: World, task: Task) -> tuple[Actions, Actions]:
    return ["-987654321", "(", json.loads(task.payload)["gold"]], ["-987654321", "(", "-987654320"]


def of_scienceworld(world: World, task: Task) -> tuple[Actions, Actions]:
    """Lost: focus on the wrong thing, which ends the episode."""
    from r3l.environments.scienceworld.java import MACHINES
    from r3l.environments.scienceworld.world import SIMPLIFICATION

    machine, payload = MACHINES.get(512), json.loads(task.payload)
    simulator = machine.borrow()
    simulator.load(payload["type"], payload["variation"], SIMPLIFICATION, True)
    winning = list(simulator.getGoldActionSequence())
    machine.give_back(simulator)
    return winning, [*winning[:5], "dance", "go to kitchen", "open cupboard", "focus on cupboard"]


needs_shop = pytest.mark.skipif(find_spec("thefuzz") is None, reason="the extra [webshop] is not installed")
needs_java = pytest.mark.skipif(
    shutil.which("java") is None or find_spec("scienceworld") is None,
    reason="needs Java (apt-get install default-jre-headless) and the extra [scienceworld]",
)
WORLDS = [
    *(
        pytest.param(HouseholdSettings(level=level, train_tasks=3), of_household, "", id=level)
        for level in ("short", "easy", "standard", "long")
    ),
    pytest.param(WebShopSettings(), of_webshop, "", id="webshop", marks=needs_shop),
    pytest.param(MathSettings(train_tasks=4), of_math, "", id="math"),
    pytest.param(
        ScienceWorldSettings(), of_scienceworld, "find-plant", id="scienceworld", marks=[needs_java, pytest.mark.slow]
    ),
]


@pytest.mark.parametrize(("settings", "ways", "task_type"), WORLDS)
def test_won_and_lost_and_rolled_back_at_every_turn(settings: EnvironmentSettings, ways, task_type: str) -> None:
    world = make_world(settings)
    task = next(task for task in world.tasks("train") if task.task_type == (task_type or task.task_type))
    for actions, won in zip(ways(world, task), (True, False), strict=True):
        base = Sessions(world)
        seen = [base.start("base", task).text]
        steps = [base.step("base", action) for action in actions]
        seen += [step.observation.text for step in steps]
        assert not any(step.done for step in steps[:-1])
        assert (steps[-1].success, steps[-1].reward == 1.0) == (won, won)
        for sessions in (base, Sessions(world)):
            for pivot in range(len(actions)):
                rollback = sessions.rollback("retry", task, actions[:pivot], seen[: pivot + 1])
                assert (rollback.observations, rollback.diverged_at, rollback.exact) == (seen[: pivot + 1], None, True)
                assert sessions.step("retry", actions[pivot]) == steps[pivot], "and goes on as it did"
            sessions.close()
