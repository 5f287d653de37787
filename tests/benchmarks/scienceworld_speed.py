"""ScienceWorld's speed beside its stock wrapper, a row of the table: milliseconds of the processor, of this process and
its Java machine together, so that a loaded machine says the same."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import psutil

from r3l.config.environments import ScienceWorldSettings
from r3l.environments.scienceworld.java import MACHINES
from r3l.environments.scienceworld.world import SIMPLIFICATION, ScienceWorldWorld

TYPES = ("find-plant", "boil", "chemistry-mix")
Measured = dict[str, float]


def clock() -> Callable[[], float]:
    """Seconds of the processor so far, of this process and those it has started; not of the threads in which Java
    compiles what is hot."""
    own = psutil.Process()
    pids = {own.pid, *(child.pid for child in own.children(recursive=True))}
    threads = [
        thread
        for pid in pids
        for thread in Path(f"/proc/{pid}/task").iterdir()
        if "Compiler" not in (thread / "comm").read_text()
    ]
    seen = dict.fromkeys(threads, 0)

    def seconds() -> float:
        for thread in threads:
            with contextlib.suppress(OSError):  # one that has ended keeps what it had
                seen[thread] = int((thread / "schedstat").read_text().split()[0])
        return sum(seen.values()) / 1e9

    return seconds


def gold(task_type: str) -> list[str]:
    simulator = MACHINES.get(512).borrow()
    simulator.load(task_type, 0, SIMPLIFICATION, True)
    actions = list(simulator.getGoldActionSequence())
    MACHINES.get(512).give_back(simulator)
    return actions


def own(plans: dict[str, list[str]], episodes: int) -> Measured:
    world = ScienceWorldWorld(ScienceWorldSettings())
    tasks = {task.task_type: task for task in reversed(world.tasks("train"))}
    environment, steps, won, stepping, loading, processor_s = world.make(), 0, 0, 0.0, 0.0, clock()
    for number in range(episodes):
        name = TYPES[number % len(TYPES)]
        began = processor_s()
        environment.reset(tasks[name])
        loaded = processor_s()
        for action in plans[name]:
            steps += 1
            if (step := environment.step(action)).done:
                won += step.success
                break
        stepping, loading = stepping + processor_s() - loaded, loading + loaded - began
    environment.close()
    return {
        "episodes": episodes,
        "won": won,
        "reset_ms": round(loading / episodes * 1e3, 1),
        "step_ms": round(stepping / steps * 1e3, 2),
    }


def stock(plans: dict[str, list[str]], limit: int) -> Measured:
    from scienceworld import ScienceWorldEnv

    environment, steps, stepping, loading, loads = ScienceWorldEnv("", envStepLimit=1000), 0, 0.0, 0.0, 0
    processor_s = clock()
    while steps < limit:
        name = TYPES[loads % len(TYPES)]
        began = processor_s()
        environment.load(name, 0, SIMPLIFICATION)
        environment.reset()
        loads, loaded = loads + 1, processor_s()
        loading += loaded - began
        for action in plans[name]:
            environment.step(action)
            steps += 1
        stepping += processor_s() - loaded
    environment.close()
    return {"loads": loads, "reset_ms": round(loading / loads * 1e3, 1), "step_ms": round(stepping / steps * 1e3, 2)}


def compared(episodes: int, limit: int, rounds: int = 1) -> list[tuple[Measured, Measured]]:
    """(own, stock), in turns."""
    actions = {name: gold(name) for name in TYPES}
    found = []
    for _ in range(rounds):
        own(actions, 9)  # the machine compiles what is hot
        ours = own(actions, episodes)
        MACHINES.stop()
        found.append((ours, stock(actions, limit)))
    return found
