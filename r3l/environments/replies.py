"""What a reply says after its thought, and replies of the form <think>...</think> <action>...</action>, as ALFWorld,
ScienceWorld and WebShop ask for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from r3l.config.environments import EnvironmentSettings
from r3l.environments.base import Reply
from r3l.records import Task

OPEN, CLOSE = "<think>", "</think>"
EXPECTED = "Expected exactly one <think>...</think> followed by exactly one <{tag}>...</{tag}>."


def after_thought(text: str) -> str:
    """Cut what stands after the last thought. Reports, boxes, actions and calls are read there alone: a thought may try
    any of them. A thought that does not end has nothing after it."""
    answer = text.rpartition(CLOSE)[2]
    return answer.partition(OPEN)[0]


def span_after_thought(text: str) -> tuple[int, int]:
    """Find from where to where in the text that stands, without the white space around it."""
    answer = after_thought(text).strip()
    start = text.index(answer, thought_end(text))
    return start, start + len(answer)


def thought_end(text: str) -> int:
    return len(text) - len(text.rpartition(CLOSE)[2])


def parse_tagged_reply(text: str) -> Reply:
    """Parse what stands in the one <action>...</action> after the thought; text around both is let pass.

    The action is one line, stripped; anything else is invalid and says why.
    """
    reply = parse_tagged(text, "action", str)
    return invalid("<action> holds more than one line", "action") if "\n" in reply.action else reply


def parse_tagged(text: str, tag: str, counted: Callable[[int], str]) -> Reply:
    """Parse what one tag after a thought holds, stripped. `counted`: how a number of tags is told."""
    opening, ending = f"<{tag}>", f"</{tag}>"
    if OPEN not in text:
        return invalid(f"{counted(0)} <think> tags", tag)
    first, close_tag, rest = text.partition(CLOSE)
    if not close_tag or OPEN not in first or OPEN in text.rpartition(CLOSE)[2]:
        return invalid("</think> must close <think> once", tag)
    if opening in first.partition(OPEN)[0]:
        return invalid("the tags are not in order", tag)
    # Between two thoughts nothing may be done: a second turn that the policy dreamt up is none.
    between, answer = rest.rpartition(CLOSE)[0], after_thought(text)
    if (count := answer.count(opening) + between.count(ending)) != 1:
        return invalid(f"{counted(count)} {opening} tags", tag)
    if answer.count(ending) != 1:
        return invalid(f"{ending} must close {opening} once", tag)
    before, _, inside = answer.partition(ending)[0].partition(opening)
    if opening in answer.partition(ending)[2] or opening in before:
        return invalid("the tags are not in order", tag)
    if not (action := inside.strip()):
        return invalid(f"{opening} is empty", tag)
    start = text.rindex(opening) + len(opening) + inside.index(action)
    return Reply(valid=True, action=action, span=(start, start + len(action)))


def invalid(reason: str, tag: str) -> Reply:
    return Reply(valid=False, action="", error=f"Invalid reply: {reason}. {EXPECTED.format(tag=tag)}")


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
