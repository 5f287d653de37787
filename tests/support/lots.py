"""A world that draws lots: the reward is a number drawn from all replies, and no attempt wins. So a policy made at
random has groups of mixed rewards, and each attempt is retried."""

from zlib import crc32

from r3l.config.environments import EnvironmentSettings
from r3l.environments.base import Environment, Observation, Reply, Step, Verdict, World
from r3l.records import Task


class LotsWorld(World):
    name, Settings = "lots", EnvironmentSettings

    def __init__(self, settings):
        self.settings = settings

    def system_prompt(self):
        return "Say anything."

    def parse_reply(self, text):
        return Reply(True, text or "nothing")

    def tasks(self, split):
        return [Task(0, 0, f"lots/{n}", "lots", split, "lots", payload=str(n), seed=n) for n in range(4)]

    def make(self):
        return Lots()

    def oracle_pivot(self, task, actions, observations):
        return Verdict(1, "another lot", "The second lot was bad.", "Say something else.")


class Lots(Environment):
    def reset(self, task):
        self.drawn = crc32(task.payload.encode())
        return Observation("Draw.")

    def step(self, action):
        self.drawn = crc32(action.encode(), self.drawn)
        return Step(Observation("Again."), standing=self.drawn / 2**32)

    restore = close = snapshot = lambda self, *handle: None  # rolling back takes the actions again
