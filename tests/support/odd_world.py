"""A world that answers as no environment should: the action names what its step returns or raises."""

import sys
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from r3l.config.environments import EnvironmentSettings
from r3l.environments.base import Environment, Observation, Reply, Step, Verdict, World
from r3l.environments.replies import parse_tagged_reply
from r3l.records import Task

PATH = "tests.support.odd_world:OddWorld"
FINE = Step(Observation("Go on."), reward=0.5, standing=0.25)


class Unspeakable(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Stop(BaseException):
    """An error that is no `Exception`."""


def of(**fields: Any) -> Step:
    return replace(FINE, **fields)


# What a step returns -> what its message says. Each is one failed attempt.
REFUSED: dict[str, tuple[Any, str]] = {
    "nan": (of(reward=float("nan")), "reward: expected a finite number in [0, 1], got nan (float)"),
    "infinite": (of(reward=float("inf")), "reward: expected a finite number in [0, 1], got inf (float)"),
    "standing": (of(standing=float("-inf")), "standing: expected a finite number in [0, 1], got -inf (float)"),
    "too much": (of(reward=1.5), "reward: expected a finite number in [0, 1], got 1.5 (float)"),
    "negative": (of(reward=-0.1), "reward: expected a finite number in [0, 1], got -0.1 (float)"),
    "huge": (of(reward=10**400), "reward: expected a finite number in [0, 1], got 1000"),
    "no reward": (of(reward=None), "reward: expected a finite number in [0, 1], got None (NoneType)"),
    "reward in words": (of(reward="0.5"), "reward: expected a finite number in [0, 1], got '0.5' (str)"),
    "array": (of(reward=np.array([0.5])), "reward: expected a finite number in [0, 1], got array([0.5]) (ndarray)"),
    "decimal": (of(reward=Decimal("0.5")), "got Decimal('0.5') (Decimal)"),
    "unspeakable reward": (of(reward=Unspeakable()), "a value whose repr fails with RuntimeError (Unspeakable)"),
    "progress": (of(progress=np.float32("nan")), "progress: expected a finite number in [0, 1], got np.float32(nan)"),
    "done in words": (of(done="False"), "done: expected true or false, got 'False' (str)"),
    "no success": (of(success=None), "success: expected true or false, got None (NoneType)"),
    "no text": (of(observation=Observation(None)), "observation: expected text, got None (NoneType)"),
    "number": (of(observation=Observation(3)), "observation: expected text, got 3 (int)"),
    "bytes": (of(observation=Observation(b"a")), "observation: expected text, got b'a' (bytes)"),
    "bare text": (of(observation="a"), "observation: expected an Observation, got 'a' (str)"),
    "role": (of(observation=Observation("a", role="system")), "role of an observation: expected one of"),
    "nothing": (None, "step: expected a Step, got None (NoneType)"),
    "tuple": (("a", 1.0, True), "step: expected a Step, got ('a', 1.0, True) (tuple)"),
}
RAISED: dict[str, tuple[BaseException, str]] = {
    "unspeakable": (Unspeakable(), "Unspeakable: its text fails with RuntimeError"),
    "surrogate": (ValueError("half \ud800"), "ValueError: half ⟨U+D800⟩"),
    "exit": (SystemExit(3), "SystemExit: 3"),
    "base": (Stop("over"), "Stop: over"),
}
# What a step returns -> what it is taken for.
TAKEN: dict[str, tuple[Step, Step]] = {
    "numpy": (
        of(reward=np.float32(0.5), standing=np.int64(0), progress=np.float64(0.5), done=np.bool_(True), success=False),
        of(standing=0.0, progress=0.5, done=True),
    ),
    "sum of tenths": (of(reward=1.0000000000000002), of(reward=1.0)),
    "half a pair": (of(observation=Observation("a \ud800 b")), of(observation=Observation("a ⟨U+D800⟩ b"))),
    "numpy's text": (of(observation=Observation(np.str_("a"))), of(observation=Observation("a"))),
}


class OddSettings(EnvironmentSettings):
    kind: str = PATH
    workers: int = 1


class OddWorld(World):
    name, Settings = "odd", OddSettings

    def __init__(self, settings: OddSettings) -> None:
        self.settings = settings

    def system_prompt(self) -> str:
        return "Say how I am to answer."

    def parse_reply(self, text: str) -> Reply:
        return parse_tagged_reply(text)

    def tasks(self, split: str) -> list[Task]:
        return [Task(0, 0, f"odd/{number}", "odd", split, "odd", payload="{}", seed=number) for number in range(2)]

    def make(self) -> Environment:
        return Odd()

    def oracle_pivot(self, task: Task, actions: Any, observations: Any) -> Verdict:
        return Verdict(np.int64(1) if actions else None, None if actions == ["odd"] else "why")

    def hints(self, task: Task) -> list[Any]:
        return ["vague", None] if task.seed else ["vague"]


class Odd(Environment):
    def reset(self, task: Task) -> Observation:
        return Observation("What shall I answer?")

    def step(self, action: str) -> Step:
        if action in RAISED:
            raise RAISED[action][0]
        if action == "print":
            sys.stdout.write("NaN\n")
            return FINE
        return (REFUSED | TAKEN).get(action, (FINE,))[0]

    restore = close = snapshot = lambda self, *handle: None
