"""Mathematics: up to `max_turns` attempts at a problem with right/wrong feedback, which never holds the gold answer.

Problems are drawn from reasoning-gym (procedural, no download), from a public benchmark or from a file. Reward 1 where
an attempt is verified, else 0; rolling back keeps the first attempts and their feedback.
"""

import json
import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from r3l.config.environments import MathSettings
from r3l.environments.base import Benchmark, Environment, Observation, Reply, Step
from r3l.environments.math.benchmarks import BENCHMARKS, benchmark_problems, prepare_rows
from r3l.environments.math.grader import Grade, Grader, Library, shared_grader
from r3l.environments.math.leaks import gold_leaks, reveals
from r3l.environments.math.problems import Problem, parse_answer_reply, parse_boxed_reply
from r3l.environments.math.procedural import procedural_problems
from r3l.environments.replies import prompt_text
from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.home import locate
from r3l.system.seeds import derive

log = logging.getLogger(__name__)
PLAIN = re.compile(r"[-+]?[\d,]*\.?\d+")  # nobody has to ask a grader about these
SHOWN = 5  # of the names that a warning lists
RIGHT = "Your answer is correct."
WRONG = "Your answer is not correct."
UNREADABLE = "Your answer could not be read as mathematics, so it counts as not correct."
TOO_LONG = "Your answer could not be checked in time, so it counts as not correct."
AGAIN = " Find the mistake in your reasoning and answer again."
OVER = " No attempt is left."


class MathWorld:
    name = "math"
    version = 4
    packages = ("math_verify",)
    tasks_at_once = 16  # a step waits for the grader
    remarks = (RIGHT, WRONG, UNREADABLE, TOO_LONG, AGAIN, OVER)
    benchmarks: ClassVar = {
        name: Benchmark({"dataset": name}, "test", number, ("answer", "boxed"), attempts=True)
        for name, number in {"procedural": None, **{name: one.count for name, one in BENCHMARKS.items()}}.items()
    }
    prepare = staticmethod(prepare_rows)
    gold_leaks = staticmethod(gold_leaks)

    Settings = MathSettings

    def __init__(self, settings: MathSettings) -> None:
        self.settings = settings

    def system_prompt(self) -> str:
        return prompt_text("math" if self.settings.answer_format == "answer" else "math_boxed")

    def parse_reply(self, text: str) -> Reply:
        return parse_answer_reply(text) if self.settings.answer_format == "answer" else parse_boxed_reply(text)

    def tasks(self, split: str) -> list[Task]:
        procedural = self.settings.dataset == "procedural"
        problems = procedural_problems(self.settings, split) if procedural else benchmark_problems(self.settings, split)
        if not procedural:
            say_unreadable(self.settings, split, tuple((problem.name, problem.gold) for problem in problems))
        source = f"procedural-{self.settings.tasks_seed}" if procedural else Path(self.settings.dataset).stem
        return [self.task(problem, f"math/{source}/{split}/{problem.name}", split) for problem in problems]

    def task(self, problem: Problem, task_id: str, split: str) -> Task:
        seed = derive(self.settings.tasks_seed, task_id)
        return Task(0, 0, task_id, self.name, split, problem.task_type, problem.to_json(), seed)

    def reveals(self, task: Task, report: str, replies: Sequence[str]) -> bool:
        """Tell whether a reflection's report holds the gold answer and neither the question nor the policy's own
        replies do."""
        return reveals(json.loads(task.payload), report, replies)

    def data(self, split: str) -> str:
        """Name the set, a file of one's own with its bytes, or the kinds that problems are made of."""
        settings, path = self.settings, locate(self.settings.dataset)
        if settings.dataset == "procedural":
            return f"procedural-{settings.tasks_seed}, {settings.kinds}"
        return f"{path.name} ({path.stat().st_size:,} bytes)" if path.is_file() else settings.dataset

    def make(self) -> Environment:
        library: Library = "reasoning_gym" if self.settings.dataset == "procedural" else "math_verify"
        return MathEnvironment(self.settings.max_turns, shared_grader(self.settings.grade_timeout_s, library))


@lru_cache(maxsize=8)
def say_unreadable(settings: MathSettings, split: str, golds: tuple[tuple[str, str], ...]) -> list[str]:
    """Log the names of problems whose gold answer is no mathematics, and list them: an answer has to have its text.
    Where math-verify is not installed the first attempt says so."""
    doubtful = [(name, gold) for name, gold in golds if not PLAIN.fullmatch(gold)]
    if not doubtful or find_spec("math_verify") is None:
        return []
    grader = Grader(settings.grade_timeout_s)
    try:
        unreadable = {name: gold for name, gold in doubtful if not grader.readable(gold)}
    finally:
        grader.stop()
    if unreadable:
        log.warning(
            "%s, %s: %d of %d gold answers can't be read as mathematics, so only the same text is correct: %s",
            settings.dataset,
            split,
            len(unreadable),
            len(golds),
            ", ".join(f"{name} ({gold!r:.60})" for name, gold in list(unreadable.items())[:SHOWN]),
        )
    return list(unreadable)


class MathEnvironment:
    """One episode. All it remembers is how many attempts were made, so that is what a snapshot holds."""

    def __init__(self, max_attempts: int, grader: Grader) -> None:
        self.max_attempts, self.grader = max_attempts, grader
        self.problem: Problem | None = None
        self.attempts = 0

    def reset(self, task: Task) -> Observation:
        try:
            self.problem = Problem.from_json(task.payload)
        except (KeyError, TypeError, ValueError, json.JSONDecodeError) as error:
            raise WorldError(
                f"not a math problem: {error!r} in the payload of {task.task_id}; take tasks from MathWorld.tasks"
            ) from error
        self.attempts = 0
        self.grader.start()  # while the policy thinks about its first reply
        return Observation(self.problem.question)

    def step(self, action: str) -> Step:
        if self.problem is None:
            raise WorldError("math: step before reset")
        grade = self.problem.grade(self.grader, action)
        self.attempts += 1
        last = self.attempts >= self.max_attempts
        return Step(
            Observation(feedback(grade, last)),
            done=grade.correct or last,
            reward=float(grade.correct),
            success=grade.correct,
            accepted=not grade.reason,
        )

    def snapshot(self) -> int:
        return self.attempts

    def restore(self, handle: object) -> None:
        if not isinstance(handle, int):
            raise WorldError(f"math: restore needs a handle of snapshot(), got {type(handle).__name__}")
        self.attempts = handle

    def close(self) -> None:
        self.problem = None


def feedback(grade: Grade, last: bool) -> str:
    """Say right or wrong and the kind of error. No digit stands in it, so no number can be read out of it."""
    if grade.correct:
        return RIGHT
    kind, _, _ = grade.reason.partition(":")
    text = {"": WRONG, "unreadable": UNREADABLE}.get(kind, TOO_LONG)  # else timeout, or too large
    return text + (OVER if last else AGAIN)
