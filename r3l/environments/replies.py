"""Replies of the form <think>...</think> <action>...</action>, as ALFWorld, ScienceWorld and WebShop ask for."""

from __future__ import annotations

import re

from r3l.environments.base import Reply

TAGS = re.compile(r"<think>(?P<thought>.*?)</think>\s*<action>(?P<action>.*?)</action>", re.DOTALL)
EXPECTED = "Expected exactly one <think>...</think> followed by exactly one <action>...</action>."


def parse_tagged_reply(text: str) -> Reply:
    """Return the action of a reply with both tags, once each and in that order; text around them is let pass.

    The action is one line, stripped; anything else is invalid and says why.
    """
    for tag in ("think", "action"):
        if (count := text.count(f"<{tag}>")) != 1 or text.count(f"</{tag}>") != 1:
            return invalid(f"{count} <{tag}> tags" if count != 1 else f"</{tag}> must close <{tag}> once")
    match = TAGS.search(text)
    if not match:
        return invalid("the tags are not in order")
    action = match["action"].strip()
    if not action:
        return invalid("<action> is empty")
    if "\n" in action:
        return invalid("<action> holds more than one line")
    return Reply(valid=True, action=action)


def invalid(reason: str) -> Reply:
    return Reply(valid=False, action="", error=f"Invalid reply: {reason}. {EXPECTED}")
