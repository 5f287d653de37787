"""ScienceWorld on its real engine: gold actions win, a wrong focus loses, rollbacks read the same, the Java machine
ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec

import psutil
import pytest

from r3l.config.environments import ScienceWorldSettings
from r3l.environments.base import Step
from r3l.environments.scienceworld.java import MACHINES, java_path
from r3l.environments.scienceworld.tasks import SPLITS, TEST_VARIATIONS, TRAIN_VARIATIONS
from r3l.environments.scienceworld.world import SIMPLIFICATION, VAGUE, ScienceWorldWorld, hints
from r3l.environments.workers.pool import WorldPool
from r3l.environments.workers.sessions import Sessions
from r3l.errors import WorldError

needs_java = pytest.mark.skipif(
    shutil.which("java") is None or find_spec("scienceworld") is None,
    reason="needs Java (apt-get install default-jre-headless) and the extra [scienceworld]",
)

# The paper's split (section Experimental Setup), written out: tasks of each type.
TRAIN = {
    "boil": 15, "melt": 15, "change-the-state-of-matter-of": 15, "use-thermometer": 270,
    "measure-melting-point-known-substance": 218, "power-component": 10, "test-conductivity": 450,
    "find-living-thing": 150, "find-plant": 150, "grow-plant": 63, "chemistry-mix": 16,
    "chemistry-mix-paint-secondary-color": 18, "lifespan-shortest-lived": 62, "identify-life-stages-2": 5,
    "inclined-plane-determine-angle": 84, "inclined-plane-friction-named-surfaces": 693,
    "mendelian-genetics-known-plant": 60,
}  # fmt: skip
TEST = {
    "freeze": 15, "measure-melting-point-unknown-substance": 150,
    "power-component-renewable-vs-nonrenewable-energy": 10, "test-conductivity-of-unknown-substances": 300,
    "find-non-living-thing": 150, "find-animal": 150, "grow-fruit": 63, "chemistry-mix-paint-tertiary-color": 18,
    "lifespan-longest-lived": 62, "lifespan-longest-lived-then-shortest-lived": 62, "identify-life-stages-1": 7,
    "inclined-plane-friction-unnamed-surfaces": 81, "mendelian-genetics-unknown-plant": 240,
}  # fmt: skip


@pytest.fixture(scope="module")
def world():
    yield ScienceWorldWorld(ScienceWorldSettings())
    MACHINES.stop()


def task_of(world, task_type, variation=0):
    split = "train" if task_type in TRAIN else "test"
    return next(
        task for task in world.tasks(split) if json.loads(task.payload) == {"type": task_type, "variation": variation}
    )


def gold_actions(task_type, variation=0):
    simulator = MACHINES.get(512).borrow()
    simulator.load(task_type, variation, SIMPLIFICATION, True)
    actions = list(simulator.getGoldActionSequence())
    MACHINES.get(512).give_back(simulator)
    return actions


def play(world, task, actions) -> tuple[str, list[Step]]:
    environment = world.make()
    opening = environment.reset(task).text
    steps = []
    for action in actions:
        steps.append(environment.step(action))
        if steps[-1].done:
            break
    environment.close()
    return opening, steps


def test_the_split_is_the_papers_to_the_task():
    world = ScienceWorldWorld(ScienceWorldSettings())
    train, test = world.tasks("train"), world.tasks("test")
    assert (len(train), len(test)) == (2294, 1308)
    assert Counter(task.task_type for task in train) == TRAIN
    assert Counter(task.task_type for task in test) == TEST
    assert not {task.task_id for task in train} & {task.task_id for task in test}
    assert train[16].payload == '{"type": "melt", "variation": 1}'
    with pytest.raises(WorldError, match="expected one of train, test"):
        world.tasks("dev")


@needs_java
def test_the_simulator_counts_the_same_variations(world):
    simulator = MACHINES.get(512).borrow()
    counted = {name: int(simulator.getTaskMaxVariations(name)) for name in simulator.getTaskNames()}
    MACHINES.get(512).give_back(simulator)
    assert counted == {**TRAIN_VARIATIONS, **TEST_VARIATIONS}
    assert sum(counted.values()) == 7207
    assert [len(SPLITS[name]) for name in ("train", "test")] == [17, 13]


@needs_java
@pytest.mark.parametrize("task_type", ["find-plant", "identify-life-stages-1", "chemistry-mix"])
def test_gold_actions_win(world, task_type):
    _, steps = play(world, task_of(world, task_type), gold_actions(task_type))
    assert (steps[-1].done, steps[-1].reward, steps[-1].success, steps[-1].progress) == (True, 1.0, True, 1.0)
    assert all(step.reward == 0.0 and not step.done for step in steps[:-1])
    progress = [step.progress for step in steps]
    assert progress == sorted(progress)
    assert [step.standing for step in steps] == progress


@needs_java
@pytest.mark.slow
@pytest.mark.parametrize("task_type", [*TRAIN, *TEST])
def test_gold_actions_win_every_task_type(world, task_type):
    """Rolled back to three of its turns, each sees what was seen."""
    task, actions = task_of(world, task_type, 1), gold_actions(task_type, 1)
    opening, steps = play(world, task, actions)
    assert (steps[-1].reward, steps[-1].success) == (1.0, True)
    seen = [opening, *(step.observation.text for step in steps)]
    for pivot in (1, min(len(steps), 8), min(len(steps), 20)):
        again, repeated = play(world, task, actions[:pivot])
        assert [again, *(step.observation.text for step in repeated)] == seen[: pivot + 1]


REPORT = """Completed keys:
Sequential Subgoals:
0\tfalse\t       GoalFind\tfocus on a plant
1\tfalse\t       GoalFindNamed\t
2\tfalse\t       GoalMove\tmove it to the answer box
Unordered and Optional Subgoals:
0\tfalse\t       GoalMoveToNewLocation\tmove to a new location
"""


def test_hints_have_the_subgoals_that_have_words_and_the_beginning_of_a_solution():
    plan = "These are its steps, in this order: focus on a plant; move it to the answer box."
    vague, what, precise = hints(REPORT, ["look around", "go to kitchen", "look around", "focus on plant"])
    assert (vague, what) == (VAGUE, plan)
    assert precise == f"{plan} These actions solve it: go to kitchen; focus on plant."
    *_, long = hints(REPORT, [f"wait{n}" for n in range(31)])
    assert long == f"{plan} A solution begins with these actions: {'; '.join(f'wait{n}' for n in range(30))}."
    assert hints("", ["wait"]) == [VAGUE, "These actions solve it: wait."]


@needs_java
def test_the_last_hint_wins_and_asking_for_it_disturbs_no_episode(world):
    task, other = task_of(world, "find-plant"), task_of(world, "identify-life-stages-1")
    with WorldPool(ScienceWorldSettings(), workers=1) as pool:
        vague, what, precise = pool.ask_hints("hints", task).result(60)
    assert (vague, what) == (
        VAGUE,
        "These are its steps, in this order: focus on a plant; move living thing to answer box.",
    )
    actions = precise.removesuffix(".").split("solve it: ")[1].split("; ")
    _, steps = play(world, task, actions)
    assert (steps[-1].reward, steps[-1].success) == (1.0, True)
    environment = world.make()
    environment.reset(task)
    for turn, step in enumerate(steps):
        world.hints(other if turn % 2 else task)
        assert environment.step(actions[turn]) == step
    environment.close()


@needs_java
def test_a_wrong_focus_loses(world):
    opening, steps = play(
        world, task_of(world, "find-plant"), ["go to kitchen", "open cupboard", "focus on cupboard", "look around"]
    )
    assert opening.startswith("Your task is to find a(n) plant. First, focus on the thing. Then, move it to the")
    assert "This room is called the" in opening
    assert len(steps) == 3, "the episode ended with the focus"
    assert (steps[-1].done, steps[-1].reward, steps[-1].success, steps[-1].progress) == (True, 0.0, False, 0.0)


@needs_java
def test_partial_score_stands_when_the_episode_is_cut_off(world):
    """Boiling water: the sink's goal is worth 3 of 100, focusing on the water brings 70 (the simulator's own
    scores)."""
    actions = gold_actions("boil")
    _, steps = play(world, task_of(world, "boil"), actions[: actions.index("focus on substance in metal pot") + 1])
    assert [step.standing for step in steps[-4:]] == [0.03, 0.03, 0.03, 0.7]
    assert not any(step.done for step in steps)


@needs_java
def test_unknown_actions_are_answered_and_cost_nothing_but_the_turn(world):
    _, steps = play(world, task_of(world, "boil"), ["dance with the stove", "look around"])
    assert not steps[0].accepted
    assert steps[0].observation.text == "No known action matches that input."
    assert steps[1].accepted
    assert "This room is called" in steps[1].observation.text


@needs_java
def test_rollback_at_every_turn_sees_the_same_observations(world):
    task, actions = task_of(world, "find-plant"), gold_actions("find-plant")[:12]
    opening, steps = play(world, task, actions)
    seen = [opening, *(step.observation.text for step in steps)]
    sessions = Sessions(world)
    for pivot in range(len(steps)):
        rollback = sessions.rollback("retry", task, actions[:pivot], seen[: pivot + 1])
        assert (rollback.observations, rollback.diverged_at, rollback.exact) == (seen[: pivot + 1], None, True)
        after = sessions.step("retry", actions[pivot])
        assert after == steps[pivot], "and goes on as it did"
    sessions.close()


@needs_java
def test_two_interleaved_episodes_do_not_touch_each_other(world):
    plans = {name: (task_of(world, name), gold_actions(name)[:15]) for name in ("find-plant", "identify-life-stages-1")}
    alone = {name: play(world, task, actions)[1] for name, (task, actions) in plans.items()}
    environments = {name: world.make() for name in plans}
    for name, (task, _) in plans.items():
        environments[name].reset(task)
    together = {name: [] for name in plans}
    for turn in range(15):
        for name, (_, actions) in plans.items():
            if turn < len(alone[name]):
                together[name].append(environments[name].step(actions[turn]))
    assert together == alone
    for environment in environments.values():
        environment.close()


def test_missing_java_is_one_line_with_the_remedy(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(WorldError, match=r"needs Java 8 or newer.*apt-get install default-jre-headless") as caught:
        java_path()
    assert "\n" not in str(caught.value)


@needs_java
def test_a_java_that_does_not_start_says_why(monkeypatch, tmp_path):
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\necho 'Unrecognized VM option' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    MACHINES.stop()
    with pytest.raises(WorldError, match=r"Java did not start .*Unrecognized VM option"):
        MACHINES.get(512)


@needs_java
def test_a_machine_that_died_is_an_error_and_is_replaced(world):
    environment, task = world.make(), task_of(world, "find-plant")
    opening = environment.reset(task).text
    machine = MACHINES.get(512)
    machine.process.kill()
    machine.process.wait()
    with pytest.raises(WorldError, match="ScienceWorld, step"):
        environment.step("look around")
    assert environment.reset(task).text == opening
    environment.close()


STARTS_AND_WAITS = """
import sys, time
from r3l.environments.scienceworld.java import MACHINES
print(MACHINES.get(256).process.pid, flush=True)
time.sleep(600)
"""


def gone(pid: int, within_s: float = 120) -> bool:
    deadline = time.monotonic() + within_s
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


@needs_java
def test_the_machine_ends_with_its_process_even_when_that_is_killed():
    worker = subprocess.Popen([sys.executable, "-c", STARTS_AND_WAITS], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    java = int(worker.stdout.readline())
    assert psutil.pid_exists(java)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert gone(java)


@needs_java
def test_a_stopped_machine_leaves_no_zombie():
    MACHINES.stop()
    java = MACHINES.get(256).process.pid
    MACHINES.stop()
    assert not psutil.pid_exists(java)
