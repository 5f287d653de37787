"""A plug-in of r3l: a number is guessed, and each guess is told to be too low or too high."""

from pydantic import Field

from r3l.config.environments import EnvironmentSettings
from r3l.environments.base import Environment, Observation, Reply, Step, World
from r3l.environments.replies import parse_tagged_reply
from r3l.records import Task


class GuessSettings(EnvironmentSettings):
    max_turns: int = Field(5, ge=1, le=1000, description="guesses, 1 to 1000")
    biggest: int = Field(15, ge=1, le=1000, description="the biggest number, 1 to 1000")


class GuessWorld(World):
    name, Settings = "guess", GuessSettings

    def __init__(self, settings: GuessSettings) -> None:
        self.settings = settings

    def system_prompt(self) -> str:
        return f"Guess a number from 0 to {self.settings.biggest}. Reply <think>...</think> <action>NUMBER</action>."

    def parse_reply(self, text: str) -> Reply:
        return parse_tagged_reply(text)

    def tasks(self, split: str) -> list[Task]:
        """Even numbers are trained on, odd ones are held out."""
        wanted = range({"train": 0, "heldout": 1}[split], self.settings.biggest + 1, 2)
        return [Task(0, 0, f"guess/{n}", "guess", split, "number", payload=str(n), seed=n) for n in wanted]

    def make(self) -> Environment:
        return GuessEnvironment()


class GuessEnvironment(Environment):
    def reset(self, task: Task) -> Observation:
        self.number = int(task.payload)
        return Observation("What is the number?")

    def step(self, action: str) -> Step:
        if not action.isdecimal():
            return Step(Observation("That is no number."), accepted=False)
        won, low = int(action) == self.number, int(action) < self.number
        said = "Right." if won else "Too low." if low else "Too high."
        return Step(Observation(said), done=won, reward=float(won), success=won)

    def snapshot(self) -> None:
        """Rolling back takes the guesses again."""

    def restore(self, handle: object) -> None:
        raise AssertionError("there are no snapshots")

    def close(self) -> None:
        pass
