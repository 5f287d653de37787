"""ScienceWorld in its "easy" form: 30 turns, reward = final score / 100 in [0, 1] (paper, Experimental Setup)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from r3l.config.environments import ScienceWorldSettings
from r3l.environments.base import Benchmark, Environment, Observation, Step, Verdict
from r3l.environments.outside import number_of
from r3l.environments.replies import TaggedWorld
from r3l.environments.scienceworld.tasks import prepare_simulator, variations
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


VAGUE = (
    "Focus on nothing but what the task asks for, because another focus ends the task. Look around in every room that "
    "you come to, and finish each thing that is asked for before the next."
)
MOST_ACTIONS = 30  # as many as the paper's turns; some solutions have hundreds


def hints(progress: str, solution: Sequence[str]) -> list[str]:
    """Write two or three hints. The first one is the same for all tasks, the last one has the first `MOST_ACTIONS`
    actions of a solution.

    Args:
        progress: the simulator's report of the sub-goals. Those that have no words are left out.
        solution: actions that win, of which `look around` changes nothing and is left out.
    """
    goals = sub_goals(progress)
    plan = f"These are its steps, in this order: {'; '.join(goals)}." if goals else ""
    actions = [action for action in solution if action != "look around"]
    whole = "These actions solve it" if len(actions) <= MOST_ACTIONS else "A solution begins with these actions"
    precise = f"{whole}: {'; '.join(actions[:MOST_ACTIONS])}."
    return [VAGUE, *([plan] if plan else []), f"{plan} {precise}".strip()]


def sub_goals(progress: str) -> list[str]:
    """List what the task needs, one after the other: the words of the report's sequential sub-goals."""
    sequential, _, _ = progress.partition("Unordered and Optional Subgoals:")
    rows = [line.split("\t") for line in sequential.splitlines() if line[:1].isdigit()]
    return [row[-1].strip() for row in rows if row[-1].strip()]


def oracle_pivot(environment: Environment, task: Task, actions: Sequence[str]) -> Verdict:
    """Judge an episode by its actions, "" for a turn without a valid one: they are taken again on the simulator.

    why: won; lost (that turn ended the episode, by focusing on a wrong object); stalled (no sub-goal was reached after
        it).

    Raises:
        WorldError: Java is missing or failed.
    """
    environment.reset(task)
    steps: list[Step | None] = []
    for action in actions:
        steps.append(environment.step(action) if action else None)
        if (last := steps[-1]) is not None and last.done:
            break
    environment.close()
    return verdict_of([step.progress if step else None for step in steps], steps[-1] if steps else None)


def verdict_of(progress: Sequence[float | None], last: Step | None) -> Verdict:
    """Judge the scores. `progress[k]` is the score after turn k, None if the turn did not reach the simulator; `last`
    is the last step."""
    if last is not None and last.success:
        return Verdict(None, "won")
    if last is not None and last.done:
        return Verdict(len(progress) - 1, "lost", "That turn ended the task.", "Do not focus on that object.")
    best, turns_kept = 0.0, 0
    for k, share in enumerate(progress):
        if share is not None and share > best:
            best, turns_kept = share, k + 1
    cause = "No sub-goal was reached from this turn on." if turns_kept else "No sub-goal was reached."
    return Verdict(min(turns_kept, max(len(progress) - 1, 0)), "stalled", cause, "Do something else from there on.")
