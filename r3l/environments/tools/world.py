"""A world of Python functions: the policy calls them by JSON, and ends the task with an answer.

A call that is malformed costs a turn and is answered with what is wrong; one whose arguments don't fit is answered by
the tool. The tools' state is an object, copied for rollbacks (`r3l.environments.adapters.episodes`).
"""

import json
from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

from r3l.config.environments.adapters import ToolsSettings
from r3l.environments.adapters.episodes import CopiedEnvironment, Copies
from r3l.environments.adapters.texts import clean, object_named
from r3l.environments.base import Environment, Observation, Reply, Step, numbered_tasks, tasks_asked
from r3l.environments.outside import number_of
from r3l.environments.prepare.files import nothing_to_fetch
from r3l.environments.replies import prompt_text
from r3l.environments.tools.calls import parse_calls
from r3l.environments.tools.functions import Function, Toolset, call_tool, result_message, schema_of, with_tools
from r3l.environments.tools.servers import Servers
from r3l.errors import WorldError
from r3l.records import Task

PATIENCE = 0.8  # of the time that a worker has for a call: a slow server costs an episode, not the worker


def servers_of(toolset: type[Toolset], settings: ToolsSettings) -> Servers:
    """Open sessions with the MCP servers that a toolset names, if it names any."""
    patience = PATIENCE * min(settings.step_timeout_s, settings.episode_s)
    return Servers(getattr(toolset, "mcp_servers", ()), patience)


class ToolWorld:
    name = "tools"
    prepare = staticmethod(nothing_to_fetch)

    Settings = ToolsSettings

    def __init__(self, settings: ToolsSettings) -> None:
        self.settings, self.copies = settings, Copies()

    @cached_property
    def toolset(self) -> type[Toolset]:
        """Import the class of tools. Raise `ConfigError` where the settings name none."""
        toolset_class: type[Toolset] = object_named(self.settings.toolset, "environment.toolset")
        return toolset_class

    @cached_property
    def schemas(self) -> list[dict[str, Any]]:
        """List the tools, whoever shows them: the toolset's own, and those of its MCP servers."""
        with closing(servers_of(self.toolset, self.settings)) as servers:
            schemas = [*(schema_of(tool) for tool in self.toolset().tools()), *servers.schemas]
        names = [schema["function"]["name"] for schema in schemas]
        if not names or len(set(names)) < len(names):
            raise WorldError(f"{self.settings.toolset} has the tools {names}: expected one or more, of different names")
        return schemas

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        return self.schemas if self.settings.tools_shown == "template" else ()

    def system_prompt(self) -> str:
        own = self.settings.system_prompt or prompt_text("tools")
        return with_tools(own, self.schemas, self.settings.tools_shown)

    def parse_reply(self, text: str) -> Reply:
        return parse_calls(text, {schema["function"]["name"] for schema in self.schemas})

    def tasks(self, split: str) -> list[Task]:
        number, seed = tasks_asked(self.name, split, self.settings), self.settings.tasks_seed
        contents = self.toolset.tasks(split, number, seed)[:number]
        rows = ((str(content.get("type", "tools")), json.dumps(content)) for content in contents)
        prefix = f"tools/{self.settings.toolset.rpartition(':')[2]}-{seed}/{split}"
        return numbered_tasks(self.name, prefix, split, seed, rows)

    def data(self, split: str) -> str:
        return f"{self.settings.toolset}-{self.settings.tasks_seed}"

    def make(self) -> Environment:
        return ToolEnvironment(self.settings, self.toolset, self.copies)


class ToolEnvironment(CopiedEnvironment):
    def __init__(self, settings: ToolsSettings, toolset: type[Toolset], copies: Copies) -> None:
        super().__init__(copies)
        self.settings, self.toolset = settings, toolset
        self.servers: Servers | None = None  # of the episode

    def begin(self, task: Task) -> tuple[Toolset, Observation]:
        try:
            content = json.loads(task.payload)
        except json.JSONDecodeError as error:
            raise WorldError(f"{task.task_id}: no JSON in the payload {task.payload:.100}") from error
        if self.servers:
            self.servers.close()
        self.servers = servers_of(self.toolset, self.settings)
        tools = self.toolset()
        if self.servers.of_tool:
            tools.servers = self.servers  # type: ignore[attr-defined]
        return tools, Observation(clean(tools.start(content), self.settings.observation_characters))

    def act(self, tools: Toolset, action: str) -> Step:
        content = json.loads(action)
        if "answer" in content:
            reward = self.reward(tools, str(content["answer"]))
            last = Observation("The task has ended.")
            return Step(last, done=True, reward=reward, success=reward == 1.0, turn_reward=paid(tools))
        by_name = {str(getattr(tool, "__name__", "")): tool for tool in tools.tools()}
        results = [(call["name"], *self.result(call["name"], by_name, call["arguments"])) for call in content["calls"]]
        texts = [text if len(results) == 1 else f"{name}: {text}" for name, text, _ in results]
        return Step(
            result_message(clean("\n".join(texts), self.settings.observation_characters), self.settings.tools_shown),
            accepted=all(is_accepted for *_, is_accepted in results),
            standing=self.reward(tools, ""),
            turn_reward=paid(tools),
        )

    def result(self, name: str, own: dict[str, Function], arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool of the toolset, or else of a server."""
        if name in own or self.servers is None:
            return call_tool(own[name], arguments)
        return self.servers.call(name, arguments)

    def close(self) -> None:
        super().close()
        if self.servers:
            self.servers.close()

    def reward(self, tools: Toolset, answer: str) -> float:
        """Score an answer. Raise `WorldError` for a score beyond [0, 1]."""
        return number_of(tools.score(answer), f"{self.settings.toolset}.score")


def paid(tools: Toolset) -> float | None:
    """Ask a toolset that pays turns what the last one is paid."""
    return tools.paid() if hasattr(tools, "paid") else None
