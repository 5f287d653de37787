"""A plug-in of r3l: a number is guessed, and each guess is told to be too low or too high."""

from typing import ClassVar

from pydantic import Field

from r3l.config.environments import EnvironmentSettings
from r3l.environments.base import Benchmark, DataPlan, Environment, Observation, Reply, Step, Verdict, World
from r3l.environments.replies import parse_tagged_reply
from r3l.records import Task


class GuessSettings(EnvironmentSettings):
    max_turns: int = Field(5, ge=1, le=1000, description="Guesses of an episode, 1 to 1000.")
    biggest: int = Field(15, ge=1, le=1000, description="The biggest number, 1 to 1000.")


class GuessWorld(World):
    name, Settings = "guess", GuessSettings
    benchmarks: ClassVar = {"small": Benchmark({"biggest": 3}, "heldout")}  # evaluated on as guess/small

    def __init__(self, settings):
        self.settings = settings

    def system_prompt(self):
        return f"Guess a number from 0 to {self.settings.biggest}: <think>...</think> <action>NUMBER</action>"

    def parse_reply(self, text) -> Reply:
        return parse_tagged_reply(text)

    def tasks(self, split):  # even numbers are trained on, odd ones held out
        wanted = range({"train": 0, "heldout": 1}[split], self.settings.biggest + 1, 2)
        return [Task(0, 0, f"guess/{n}", "guess", split, "number", payload=str(n), seed=n) for n in wanted]

    def make(self):
        return Guess()

    def oracle_pivot(self, task, actions, observations):
        return Verdict(0, "halve what is left, from the first guess on")

    @staticmethod
    def prepare(settings, root, download, progress, wanted):
        return DataPlan("numbers", ("train", "heldout"), notes=("nothing is needed",))


class Guess(Environment):
    def reset(self, task):
        self.number = int(task.payload)
        return Observation("What is the number?")

    def step(self, action):
        if not action.isdecimal():
            return Step(Observation("That is no number."), accepted=False)
        won = int(action) == self.number
        said = "Right." if won else "Too low." if int(action) < self.number else "Too high."
        return Step(Observation(said), done=won, reward=float(won), success=won)

    restore = close = snapshot = lambda self, *handle: None  # rolling back takes the guesses again
