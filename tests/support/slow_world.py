"""A world whose every step takes as long as the action says."""

import time

from r3l.config.environments import EnvironmentSettings
from r3l.environments.base import Observation, Reply, Step
from r3l.records import Task


class SlowWorld:
    name = "slow"
    Settings = EnvironmentSettings

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.settings = settings

    def system_prompt(self) -> str:
        return ""

    def parse_reply(self, text: str) -> Reply:
        return Reply(True, text)

    def tasks(self, split: str) -> list[Task]:
        return [Task(0, 0, f"slow/{split}/{number}", "slow", split, "wait", "{}", number) for number in range(2)]

    def make(self) -> "SlowEnvironment":
        return SlowEnvironment()


class SlowEnvironment:
    def reset(self, task: Task) -> Observation:
        return Observation("Wait.")

    def step(self, action: str) -> Step:
        """``wait SECONDS`` or ``end``."""
        if action == "end":
            return Step(Observation("Over."), done=True, reward=1.0, success=True)
        time.sleep(float(action.removeprefix("wait ")))
        return Step(Observation("Go on."))

    def snapshot(self) -> None:
        return None

    def restore(self, handle: object) -> None:
        raise AssertionError("it gives no snapshots")

    def close(self) -> None:
        pass
