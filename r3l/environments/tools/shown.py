"""Tools where a chat template has no place for them: the system prompt lists them, results stand in tags."""

import json
import re
from collections.abc import Sequence
from string import Template
from typing import Any, Literal

from r3l.environments.base import Observation
from r3l.environments.tagged import prompt_text

TAG = re.compile(r"<(?=/?tool_(?:call|response)>)")
Shown = Literal["template", "prompt"]


def with_tools(prompt: str, tools: Sequence[dict[str, Any]], shown: Shown) -> str:
    """Add the tools to the system prompt where the template does not show them."""
    if shown == "template" or not tools:
        return prompt
    schemas = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    text = Template(prompt_text("tools_shown")).substitute(tools=schemas)
    return f"{prompt}\n\n{text}"


def result_message(text: str, shown: Shown) -> Observation:
    """Put what tools returned into a message. A tag in it may not act as one."""
    if shown == "template":
        return Observation(text, role="tool")
    return Observation(f"<tool_response>\n{TAG.sub(chr(60) + chr(0x200B), text)}\n</tool_response>")
