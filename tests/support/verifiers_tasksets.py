"""A taskset of verifiers 0.4 to play with: a number to be guessed, a drawer of tools with a state, and faults."""

import itertools
from collections.abc import Iterator

import verifiers.v1 as vf

from tests.support.verifiers_drawers import Drawers, Opened

__all__ = ["Games", "Player"]


class Row(vf.TaskData):
    answer: str


class Game(vf.Task[Row, Opened, vf.TaskConfig]):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Drawers(vf.ToolsetConfig())]

    @vf.reward(weight=0.5)
    async def right(self, trace: vf.Trace) -> float:
        if trace.last_reply == "fault":
            raise ValueError("no such reward")
        return float(self.data.answer in (trace.last_reply or ""))

    @vf.reward(weight=0.5)
    async def soon(self, trace: vf.Trace) -> float:
        return float(trace.num_turns < 3)

    @vf.stop
    async def given_up(self, trace: vf.Trace) -> bool:
        return trace.last_reply == "I give up."


class Config(vf.TasksetConfig):
    endless: bool = True


class Games(vf.Taskset[Game, Config]):
    INFINITE = True

    def load(self) -> Iterator[Game]:
        for number in itertools.count(1):
            yield Game(
                Row(prompt=f"Guess {number}.", system_prompt="Guess well.", answer=f"key {number}"), self.config.task
            )


class Player(vf.SingleAgentEnv):
    """Says once more what to do after the first answer that calls nothing."""

    async def run(self, task: Game, agents: vf.Agents) -> None:
        async with agents.agent.interaction(task) as talk:
            first = await talk.turn()
            if not first.terminated and task.data.answer not in first.last_reply:
                await talk.turn("Once more.")
