"""Environments of verifiers (Prime Intellect): its data set gives the tasks, its rubric the reward.

    described   a process reads system prompt, tools and rows
    begin       init_state, setup_state                        -> the prompt
    act         add_model_response, stop conditions, get_prompt_messages -> what was added to the conversation
    at the end  cleanup, score_rollout                         -> the rubric's reward

The state that verifiers hands about is copied for rollbacks; what an environment keeps elsewhere is found by the first
copies, and then actions are taken again (`r3l.environments.adapters.episodes`). No model client is asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments.adapters.episodes import CopiedEnvironment, Copies
from r3l.environments.adapters.texts import clean, import_package, parse_action, share_of_range
from r3l.environments.base import Environment, Observation, Reply, Step
from r3l.environments.prepare.files import nothing_to_fetch
from r3l.environments.tools.calls import parse_calls
from r3l.environments.tools.shown import with_tools
from r3l.environments.verifiers.conversation import added_observation, new_messages, opening_text, response, text_of
from r3l.environments.verifiers.described import describe
from r3l.environments.verifiers.loaded import load, tools_in
from r3l.environments.verifiers.tasksets import TasksetEnvironment, of_tasksets
from r3l.errors import ConfigError, WorldError
from r3l.records import Task, observation_hash
from r3l.system.seeds import derive

SHARED = ("client", "usage", "usage_tracker")  # of the state: what belongs to model clients, which nobody asks here
PROMPT = Path(__file__).parents[1] / "prompts" / "verifiers.txt"


class VerifiersWorld:
    name = "verifiers"
    prepare = staticmethod(nothing_to_fetch)
    packages = ("verifiers",)

    Settings = VerifiersSettings

    def __init__(self, settings: VerifiersSettings) -> None:
        self.settings, self.copies = settings, Copies()

    @property
    def said(self) -> dict[str, Any]:
        """Read what the environment says of itself; nothing where none is named. Raise `WorldError` where it can't be
        loaded."""
        if not self.settings.env:
            return {"system_prompt": "", "tools": [], "rows": {}}
        return describe(self.settings.model_dump_json())

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        tools: list[dict[str, Any]] = self.said["tools"]
        return tools if self.settings.tools_shown == "template" else ()

    def system_prompt(self) -> str:
        own = self.settings.system_prompt or self.said["system_prompt"] or PROMPT.read_text().rstrip("\n")
        return with_tools(own, self.said["tools"], self.settings.tools_shown)

    def parse_reply(self, text: str) -> Reply:
        """Parse calls and answers if the environment has tools, else the whole reply."""
        names = {tool["function"]["name"] for tool in self.said["tools"]}
        return parse_calls(text, names) if names else parse_action(text, "text")

    def tasks(self, split: str) -> list[Task]:
        """List rows of the data set, and of the evaluation set for the split heldout. Raise `ConfigError` where no
        environment is named."""
        settings = self.settings
        if not settings.env:
            raise ConfigError("environment.env is empty: name an installed environment of verifiers")
        if split not in (rows := self.said["rows"]):
            raise WorldError(f"verifiers split {split!r}: expected one of {', '.join(rows)}")
        prefix = f"verifiers/{settings.env}-{settings.tasks_seed}/{split}"
        return [
            Task(
                iteration=0,
                task=0,
                task_id=f"{prefix}/{index:05d}",
                environment=self.name,
                split=split,
                task_type=kind if isinstance(kind := row.get("task"), str) and kind else settings.env,
                payload=json.dumps(row),
                seed=derive(settings.tasks_seed, prefix, index),
            )
            for index, row in enumerate(rows[split])
        ]

    def data(self, split: str) -> str:
        rows = self.said["rows"].get(split, [])
        digest = observation_hash(json.dumps(rows))
        return f"{self.settings.env}-{self.settings.tasks_seed}, {len(rows)} rows, {digest}"

    def make(self) -> Environment:
        if of_tasksets():
            return TasksetEnvironment(self.settings)
        return VerifiersEnvironment(self.settings, self.copies)


@dataclass
class Talk:
    """An episode: verifiers' own state, and the conversation that the policy has seen."""

    state: Any
    messages: list[Any]
    turn: int = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Talk:
        for name in SHARED:
            value = dict.get(self.state, name)
            memo[id(value)] = value
        return Talk(deepcopy(self.state, memo), deepcopy(self.messages, memo), self.turn)


class VerifiersEnvironment(CopiedEnvironment):
    def __init__(self, settings: VerifiersSettings, copies: Copies) -> None:
        super().__init__(copies)
        self.settings = settings
        self.types = import_package("verifiers.types", "verifiers")
        self.env = load(settings)
        self.with_tools = bool(tools_in(self.env))
        self.system_prompt = self.env.system_prompt or ""
        self.client = nobody(import_package("verifiers.clients", "verifiers").Client)
        self.loop = asyncio.Runner()

    def begin(self, task: Task) -> tuple[Talk, Observation]:
        talk = self.loop.run(self.begun_talk(json.loads(task.payload)))
        text = opening_text(talk.messages, self.system_prompt)
        return talk, Observation(clean(text, self.settings.observation_characters))

    async def begun_talk(self, row: dict[str, Any]) -> Talk:
        state = await self.env.init_state(row, self.client, "policy", None)
        state = await self.env.setup_state(state) or state
        return Talk(state, list(await self.env.get_prompt_messages(state)))

    def act(self, talk: Talk, action: str) -> Step:
        return self.loop.run(self.answered(talk, action))

    async def answered(self, talk: Talk, action: str) -> Step:
        env, state = self.env, talk.state
        reply = response(self.types, action, talk.turn, self.with_tools)
        await env.add_model_response(state, talk.messages, reply)
        talk.turn += 1
        before, after = [*talk.messages, *state["trajectory"][-1]["completion"]], None
        if not await env.is_completed(state):
            after = list(await env.get_prompt_messages(state))
            if state.get("final_env_response") is None:
                messages = new_messages(before, after)
                talk.messages = after
                return Step(added_observation(messages, self.settings))
            await env.is_completed(state)
        return await self.scored(state)

    async def scored(self, state: Any) -> Step:
        """Make the last step, with the rubric's reward."""
        await self.env.cleanup(state)
        await self.env.rubric.score_rollout(state)
        await self.env.rubric.cleanup(state)
        reward = share_of_range(state["reward"], "reward of the rubric", self.settings)
        last = state.get("final_env_response") or []
        texts = [last] if isinstance(last, str) else [text_of(message) for message in last]
        text = "\n".join(texts) or f"The episode has ended: {state.get('stop_condition') or 'done'}."
        observation = Observation(clean(text, self.settings.observation_characters))
        return Step(observation, done=True, reward=reward, success=reward == 1.0)

    def close(self) -> None:
        super().close()
        self.loop.close()


def nobody(client: Any) -> Any:
    """Make a model client that answers nothing: the policy's replies come from outside."""

    class Nobody(client):  # type: ignore[misc, unused-ignore]
        async def get_response(self, *arguments: Any, **named: Any) -> Any:
            raise WorldError("the environment calls a model of its own, which r3l does not provide")

    Nobody.__abstractmethods__ = frozenset()
    return Nobody(None)
