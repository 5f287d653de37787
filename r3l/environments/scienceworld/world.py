"""ScienceWorld in its "easy" form: 30 turns, reward = final score / 100 in [0, 1] (paper, Experimental Setup)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from r3l.config.environments import ScienceWorldSettings
from r3l.environments.base import Benchmark, Observation, Step, Verdict
from r3l.environments.outside import number_of
from r3l.environments.scienceworld.hints import hints
from r3l.environments.scienceworld.oracle import oracle_pivot
from r3l.environments.scienceworld.tasks import prepare_simulator, variations
from r3l.environments.tagged import TaggedWorld
from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.seeds import derive

if TYPE_CHECKING:
    from r3l.environments.scienceworld.java import JavaMachine

SIMPLIFICATION = "easy"  # teleporting, open doors and containers, no electrical wiring, self-watering pots
NOT_UNDERSTOOD = "No known action matches that input."


class ScienceWorldWorld(TaggedWorld[ScienceWorldSettings]):
    """Cheap: neither Java nor the scienceworld package is needed until an episode starts."""

    name = "scienceworld"
    packages = ("scienceworld",)
    benchmarks: ClassVar = {"scienceworld": Benchmark({}, "test", 1308)}
    prepare = staticmethod(prepare_simulator)

    Settings = ScienceWorldSettings

    def tasks(self, split: str) -> list[Task]:
        """List the paper's tasks: 2,294 in `train`, 1,308 in `test`, of other task types."""
        return [
            self.task(
                split,
                f"{task_type}/{variation}",
                task_type,
                {"type": task_type, "variation": variation},
                derive(0, self.name, task_type, variation),
            )
            for task_type, variation in variations(split)
        ]

    def data(self, split: str) -> str:
        return "easy"  # all five simplifications, as the paper has it

    def oracle_pivot(self, task: Task, actions: Sequence[str], observations: Sequence[str]) -> Verdict:
        return oracle_pivot(self.make(), task, actions)

    def hints(self, task: Task) -> list[str]:
        """Ask for the task's hints. The simulator solves a task while it loads it, if it is asked to."""
        environment = self.make()
        environment.load(task, solved=True)
        texts = hints(environment.ask("getGoalProgressStr"), list(environment.ask("getGoldActionSequence")))
        environment.close()
        return texts

    def make(self) -> ScienceWorldEnvironment:
        return ScienceWorldEnvironment(self.settings.memory_mb)


class ScienceWorldEnvironment:
    """One episode. `progress` and `standing` are the score so far, in [0, 1]: the weighted share of sub-goals reached.

    Only raw steps and the score are asked for. The simulator's lists of valid actions, and its `look` and `inventory`
    without a step, draw from its random numbers: an episode that asked for them could not be replayed.
    """

    def __init__(self, memory_mb: int) -> None:
        self.memory_mb = memory_mb
        self.machine: JavaMachine | None = None
        self.simulator: Any = None

    def reset(self, task: Task) -> Observation:
        """Start a task: its description and what is seen around, the same text and state every time."""
        self.load(task, solved=False)
        return Observation(f"{self.ask('getTaskDescription')}\n\n{self.ask('step', 'look around')}")

    def load(self, task: Task, *, solved: bool) -> None:
        content = json.loads(task.payload)
        self.connect()
        self.ask("load", str(content["type"]), int(content["variation"]), SIMPLIFICATION, solved)

    def step(self, action: str) -> Step:
        if self.simulator is None:
            raise WorldError("step before reset")
        text = self.ask("step", action)
        # -100 after focusing on a wrong object, which ends the episode
        score = round(100 * number_of(self.ask("getScore"), "score of ScienceWorld", -1.0, 1.0))
        share = min(max(score, 0), 100) / 100
        done = bool(self.ask("getCompleted")) or score < 0
        return Step(
            Observation(text),
            done=done,
            reward=share if done else 0.0,
            success=done and score == 100,
            accepted=not text.startswith(NOT_UNDERSTOOD),
            progress=share,
            standing=share,
        )

    def snapshot(self) -> None:
        """Give no handle: the simulator has no snapshots, and a rollback loads the task and takes the actions again."""
        return None

    def restore(self, handle: object) -> None:
        raise WorldError("ScienceWorld has no snapshots: roll back by replaying the actions")

    def close(self) -> None:
        """Give the simulator back. The Java machine stays for the next episode and ends with the process."""
        if self.machine is not None and self.simulator is not None:
            self.machine.give_back(self.simulator)
        self.machine = self.simulator = None

    def connect(self) -> None:
        from r3l.environments.scienceworld.java import MACHINES

        machine = MACHINES.get(self.memory_mb)
        if machine is not self.machine:
            self.machine, self.simulator = machine, machine.borrow()

    def ask(self, method: str, *arguments: object) -> Any:
        """Call the simulator. Raise `WorldError` where the Java machine failed or is gone."""
        from py4j.protocol import Py4JError

        try:
            return getattr(self.simulator, method)(*arguments)
        except (Py4JError, OSError) as error:
            self.machine = self.simulator = None
            raise WorldError(
                f"ScienceWorld, {method}{arguments!r:.200}: {type(error).__name__}: {error!s:.500}"
            ) from error
