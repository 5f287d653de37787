"""A soak: ``python -m tests.benchmarks.soak [--episodes N] [--seed S] [environment ...]``. Bases and guided retries by
a scripted policy, one reply in twenty garbage, on worker processes that are stopped, killed and fed garbage meanwhile.
Prints a line of JSON each.
"""

import argparse
import gc
import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import TypeAdapter

from r3l.config.environments import AnyEnvironment, EnvironmentSettings
from r3l.environments import make_world
from r3l.environments.workers.pool import WorldPool
from r3l.environments.workers.process import WorkerProcess
from r3l.exploration.explorer import Explorer, Limits
from r3l.exploration.stages import base_stage, reflections_stage, retries_stage
from r3l.records import Episode, SamplingPlan, Status, Task
from tests.support.fakes import CharChat, ScriptedEngine

PLAN = SamplingPlan(bases=4, reflection="report", retries_per_base=1, retry_when="always")
TASKS_AT_ONCE, DISTINCT_TASKS = 2, 12
GARBAGE = [
    "",
    "no tags at all",
    "<action>",
    "\x00\x1b[2J\ud7ff",
    "cut off…",
    *(
        f"<think>hm</think><{tag}>{text}</{tag}>"
        for tag, text in (
            ("answer", "10^{10^{10^{10}}}"),
            ("answer", "(" * 3000),
            ("action", "a" * 20_000),
            ("action", "[" * 500),
            ("action", "\x00"),
        )
    ),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "alfworld": {"admissible": True, "train_games": DISTINCT_TASKS, "heldout_games": 1},
    "household": {"level": "standard", "train_tasks": DISTINCT_TASKS},
    "webshop": {},
    # A grader and a Java machine start within a call.
    "math": {"step_timeout_s": 40, "train_tasks": DISTINCT_TASKS, "kinds": "chain_sum,gcd", "grade_timeout_s": 1},
    "scienceworld": {"step_timeout_s": 40, "memory_mb": 256, "max_turns": 15},
}
Sample = tuple[int, float]  # how many processes a worker is, and their MB together
FAULTS = ("hang", "kill", "garbage", "kill a child")


@dataclass
class Soaked:
    """What came of one environment's episodes."""

    environment: str
    episodes: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    unexplained: int = 0  # not completed, and no reason given: none may be
    left: list[str] = field(default_factory=list)  # processes that outlived the pool: none may
    growth_mb: float | None = (
        None  # of a worker and its children, the most that any grew; None: none lived long enough to say
    )
    own_mb: tuple[float, float] = (0.0, 0.0)  # this process, after a fifth and at the end
    seconds: float = 0.0


class Policy:
    """Acts at random on what it is shown, writes a reflection with a random pivot, and now and then garbage."""

    def __init__(self, environment: str, seed: int) -> None:
        self.environment, self.rng = environment, random.Random(seed)

    def __call__(self, request_id: str, prompt: str) -> str:
        if "/reflection=" in request_id:
            turns = [int(found) for found in re.findall(r"\nTurn (\d+): ", prompt)] or [0]
            return json.dumps(
                {
                    "trajectory_summary": "s",
                    "root_cause_analysis": "c",
                    "trajectory_outcome": "failure",
                    "improvement_suggestion": "Do otherwise.",
                    "retry_from_step": self.rng.randint(0, max(turns)),
                }
            )
        if self.rng.random() < 0.05:
            return self.rng.choice(GARBAGE)
        tag = "answer" if self.environment == "math" else "action"
        return f"<think>hm</think><{tag}>{self.action(prompt)}</{tag}>"

    def action(self, prompt: str) -> str:
        last = prompt[prompt.rfind("<u>") :]
        if self.environment == "alfworld":
            return self.rng.choice(last.rpartition("Admissible commands: ")[2].removesuffix("<a>").split(", "))
        if self.environment == "household":
            things = re.findall(r"\b[a-z]+ \d+\b", prompt) or ["cabinet 1"]
            verb = self.rng.choice(("go to", "go to", "open", "take {} from", "move {} to"))
            return f"{verb.format(self.rng.choice(things))} {self.rng.choice(things)}"
        if self.environment == "webshop":
            buttons = re.findall(r"\[button\] (.*?) \[button_\]", last)
            return f"click[{self.rng.choice(buttons)}]" if buttons and "Search" not in buttons else "search[a red mug]"
        if self.environment == "math":
            return str(self.rng.randint(0, 50))
        return self.rng.choice(
            ("look around", "inventory", "wait1", "go to kitchen", "open cupboard", "focus on cupboard", "pick up pot")
        )


def processes() -> dict[int, int]:
    """Process -> its parent, as the kernel lists them; no zombies."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue  # it ended meanwhile
            found[int(entry.name)] = int(parent) if status != "Z" else 0
    return found


def descendants(root: int) -> set[int]:
    listed, known = processes(), {root}
    while more := {pid for pid, parent in listed.items() if parent in known} - known:
        known |= more
    return known - {root}


def resident_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0) / 1024


class Saboteur:
    """Breaks a worker of the pool each time it is asked, in turn in each way that there is."""

    def __init__(self, pool: WorldPool, seed: int) -> None:
        self.pool, self.rng, self.done = pool, random.Random(seed), Counter[str]()
        self.struck: set[int] = set()  # they are to be replaced: each once

    def strike(self) -> None:
        fault = FAULTS[sum(self.done.values()) % len(FAULTS)]
        ready = [
            worker
            for worker in self.pool.workers
            if worker.ready and not worker.lost and worker.process.pid not in self.struck
        ]
        if not ready:
            return
        worker = self.rng.choice(ready)
        children = descendants(worker.process.pid)
        if fault == "kill a child" and not children:
            fault = "kill"
        if fault != "kill a child":
            self.struck.add(worker.process.pid)
        self.inflict(fault, worker, children)
        self.done[fault] += 1

    def inflict(self, fault: str, worker: WorkerProcess, children: set[int]) -> None:
        if fault == "hang":
            worker.process.send_signal(signal.SIGSTOP)
        elif fault == "kill":
            worker.process.kill()
        elif fault == "garbage":
            worker.write('{"id": ]')
        else:
            os.kill(min(children), signal.SIGKILL)


def soak(environment: str, episodes: int, faults: int, root: str, seed: int = 0) -> Soaked:
    """Play at least `episodes` episodes with `faults` faults over the first half of them: the second half shows whether
    memory grows."""
    settings: EnvironmentSettings = TypeAdapter(AnyEnvironment).validate_python(
        {"kind": environment, "data_root": root, "workers": 2, "step_timeout_s": 15, **SETTINGS[environment]}
    )
    world, soaked, began, before = make_world(settings), Soaked(environment), time.monotonic(), descendants(os.getpid())
    tasks = world.tasks("train")[:DISTINCT_TASKS]
    seen: dict[int, list[Sample]] = {}  # of each worker, one a round
    own: list[tuple[int, float]] = []
    with WorldPool(settings) as pool:
        signal.signal(signal.SIGTERM, lambda *_: end_with(pool))
        saboteur, policy = Saboteur(pool, seed), Policy(environment, seed)
        explorer = Explorer(
            world,
            pool,
            ScriptedEngine(policy),
            CharChat(),
            "soak",  # type: ignore[arg-type]
            Limits(settings.max_turns, 512, 1.0),
        )
        while soaked.episodes < episodes:
            due = sum(saboteur.done.values()) < min(faults, 1 + faults * soaked.episodes / (episodes / 2))
            explorer.engine.script = striking(policy, saboteur) if due else policy  # type: ignore[attr-defined]
            account(soaked, play(explorer, tasks, soaked.episodes))
            explorer.engine.requests.clear()  # type: ignore[attr-defined]
            gc.collect()
            own.append((soaked.episodes, resident_mb(os.getpid())))
            for worker in pool.workers:
                family = {worker.process.pid, *descendants(worker.process.pid)}
                seen.setdefault(worker.process.pid, []).append((len(family), sum(map(resident_mb, family))))
        soaked.restarts, soaked.faults = pool.counts()["restarts"], saboteur.done
    time.sleep(1)
    soaked.left = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in descendants(os.getpid()) - before]
    soaked.growth_mb = max(
        (growth for samples in seen.values() if (growth := grown(samples)) is not None), default=None
    )
    soaked.own_mb = (round(next(size for at, size in own if at >= episodes / 5), 1), round(own[-1][1], 1))
    soaked.seconds = round(time.monotonic() - began, 1)
    return soaked


def end_with(pool: WorldPool) -> None:
    """A worker that is stopped just now would outlive its pool: it can't see its input end."""
    for worker in pool.workers:
        worker.process.kill()
    os._exit(128 + signal.SIGTERM)


def grown(samples: list[Sample]) -> float | None:
    """Return how many MB it climbs by the median slope between any two samples that have all its processes, the first
    quarter of them left out: a grader or a Java machine that starts late or is being replaced, and a cache that fills,
    are no leak. None: too few to say."""
    whole = [size for processes, size in samples if processes == max(samples)[0]]
    warm = list(enumerate(whole[len(whole) // 4 :]))
    slopes = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in combinations(warm, 2)]
    return round(median(slopes) * (len(warm) - 1), 1) if len(whole) >= 4 else None


def striking(policy: Policy, saboteur: Saboteur) -> Callable[[str, str], str]:
    """The same policy, one of whose next replies comes while a worker is being broken, and another somewhat later."""
    left = [saboteur.rng.randint(3, 40)]

    def struck(request_id: str, prompt: str) -> str:
        left[0] -= 1
        if left[0] == 0:
            saboteur.strike()
            left[0] = saboteur.rng.randint(20, 40)
        return policy(request_id, prompt)

    return struck


def play(explorer: Explorer, tasks: list[Task], number: int) -> list[Episode]:
    """Four bases of each of a few tasks, a reflection on each, and the retries."""
    chosen = [
        replace(tasks[(number + slot) % len(tasks)], iteration=number, task=slot) for slot in range(TASKS_AT_ONCE)
    ]
    bases = base_stage(explorer, chosen, PLAN)
    reflections = reflections_stage(explorer, chosen, PLAN, bases, bases, 0)
    return [*bases, *retries_stage(explorer, chosen, PLAN, bases, bases, reflections)]


def account(soaked: Soaked, episodes: list[Episode]) -> None:
    for one in episodes:
        soaked.episodes += 1
        soaked.statuses[str(Status(one.trajectory.status))] += 1
        soaked.unexplained += one.trajectory.status != Status.COMPLETED and not one.trajectory.reason


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(".")[0])
    parser.add_argument("environments", nargs="*", help="empty: all that can run here")
    parser.add_argument("--episodes", type=int, default=200, help="of each environment")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chosen = asked.environments or [name for name in SETTINGS if name != "scienceworld" or shutil.which("java")]
    with tempfile.TemporaryDirectory() as root:
        for name in chosen:
            soaked = soak(name, asked.episodes, max(3, asked.episodes * 12 // 200), root, asked.seed)
            print(
                json.dumps({**soaked.__dict__, "statuses": dict(soaked.statuses), "faults": dict(soaked.faults)}),
                flush=True,
            )


if __name__ == "__main__":
    main()
