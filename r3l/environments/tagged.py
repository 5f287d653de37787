"""What worlds that ship share: system prompts in files, and replies whose action stands in a tag."""

import json
from pathlib import Path
from typing import Any, Generic, TypeVar

from r3l.config.environments import EnvironmentSettings
from r3l.environments.base import Reply
from r3l.environments.replies import parse_tagged_reply
from r3l.records import Task

PROMPTS = Path(__file__).parent / "prompts"
SettingsT = TypeVar("SettingsT", bound=EnvironmentSettings)


def prompt_text(name: str) -> str:
    """Read a prompt of `r3l/environments/prompts`."""
    return (PROMPTS / f"{name}.txt").read_text().rstrip("\n")


class TaggedWorld(Generic[SettingsT]):
    """A world with one system prompt, that of its name, whose policy acts by tags."""

    name: str

    def __init__(self, settings: SettingsT) -> None:
        self.settings = settings

    def system_prompt(self) -> str:
        return prompt_text(self.name)

    def parse_reply(self, text: str) -> Reply:
        return parse_tagged_reply(text)

    def task(self, split: str, name: str, task_type: str, content: dict[str, Any], seed: int) -> Task:
        """Make the task of this name in a split; `content` is what `reset` reads from its payload."""
        return Task(0, 0, f"{self.name}/{split}/{name}", self.name, split, task_type, json.dumps(content), seed)
