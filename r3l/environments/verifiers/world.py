"""Environments of verifiers (Prime Intellect): a process reads system prompt, tools and rows of a taskset
(`described`), workers play its episodes (`tasksets`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments.adapters.texts import parse_action
from r3l.environments.base import Environment, Reply, numbered_tasks
from r3l.environments.prepare.files import nothing_to_fetch
from r3l.environments.replies import prompt_text
from r3l.environments.tools.calls import parse_calls
from r3l.environments.tools.functions import with_tools
from r3l.environments.verifiers.described import describe
from r3l.environments.verifiers.tasksets import TasksetEnvironment
from r3l.errors import ConfigError, WorldError
from r3l.records import Task, observation_hash


class VerifiersWorld:
    name = "verifiers"
    prepare = staticmethod(nothing_to_fetch)
    packages = ("verifiers",)

    Settings = VerifiersSettings

    def __init__(self, settings: VerifiersSettings) -> None:
        self.settings = settings

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
        own = self.settings.system_prompt or self.said["system_prompt"] or prompt_text("verifiers")
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
        contents = ((settings.env, json.dumps(row)) for row in rows[split])
        prefix = f"verifiers/{settings.env}-{settings.tasks_seed}/{split}"
        return numbered_tasks(self.name, prefix, split, settings.tasks_seed, contents)

    def data(self, split: str) -> str:
        rows = self.said["rows"].get(split, [])
        digest = observation_hash(json.dumps(rows))
        return f"{self.settings.env}-{self.settings.tasks_seed}, {len(rows)} rows, {digest}"

    def make(self) -> Environment:
        return TasksetEnvironment(self.settings)
