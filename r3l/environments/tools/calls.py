"""Calls of tools in a reply: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, as Hermes and Qwen write
them, or the bare JSON object. A reply without a call is the answer.

An action is JSON, the same for both forms: ``{"calls": [{"name": ..., "arguments": {...}}]}`` or ``{"answer": "..."}``.
"""

import json
import math
import re
from collections.abc import Collection
from typing import Any

from r3l.environments.base import Reply
from r3l.environments.replies import after_thought, thought_end

BLOCK = re.compile(r"<tool_call>(?P<call>.*?)</tool_call>", re.DOTALL)
FENCE = re.compile(r"\A```(?:json)?\s*\n(?P<inside>.*)\n```\Z", re.DOTALL)
# Without the tags themselves: a chat shows them in a message as data, which is not how they are to be written.
EXPECTED = 'Expected a JSON object with "name" and "arguments" between tool_call tags, or an answer without a call.'
LONGEST_CALL = 100_000  # characters


class Malformed(ValueError):
    """What is wrong with a call, in words that the policy is told."""


def parse_calls(text: str, names: Collection[str]) -> Reply:
    """Parse the calls of a reply, of tools with these names, or its answer. What was thought before it is no call."""
    answer = after_thought(text).strip()
    if not answer:
        return Reply(False, "", f"Invalid reply: it is empty. {EXPECTED}")
    try:
        texts = blocks(answer)
        calls = [call for block in texts for call in read(block, names)]
    except Malformed as error:
        return Reply(False, "", f"Invalid call: {error}. {EXPECTED}")
    if not calls:
        return Reply(True, json.dumps({"answer": answer}))
    span = text.index(texts[0], thought_end(text)), text.rindex(texts[-1]) + len(texts[-1])
    return Reply(True, json.dumps({"calls": calls}), span=span)


def blocks(said: str) -> list[str]:
    """Find the JSON texts of the calls. Raise `Malformed` for tags that don't close."""
    opening_tags, closing_tags = said.count("<tool_call>"), said.count("</tool_call>")
    texts = BLOCK.findall(said)
    if not len(texts) == opening_tags == closing_tags:
        raise Malformed(
            f"{opening_tags} opening and {closing_tags} closing tool_call tags do not enclose calls one by one"
        )
    if texts:
        return list(texts)
    fence = FENCE.match(said)
    bare = fence["inside"].strip() if fence else said
    looks_like_call = bare[0] in "{[" and '"name"' in bare and ('"arguments"' in bare or '"parameters"' in bare)
    return [bare] if looks_like_call else []


def read(block: str, names: Collection[str]) -> list[dict[str, Any]]:
    """Read the calls of one JSON text. Raise `Malformed`."""
    if len(block) > LONGEST_CALL:
        raise Malformed(f"it has {len(block)} characters, of which {LONGEST_CALL} are read")
    content = json_value(block)
    calls = content if isinstance(content, list) else [content]
    if not calls:
        raise Malformed("the list of calls is empty")
    return [check_call(call, names) for call in calls]


def check_call(call: Any, names: Collection[str]) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise Malformed(f"expected a JSON object, got {type(call).__name__}")
    name = call.get("name")
    if not isinstance(name, str) or name not in names:  # a list is in no set: Python would not even look
        raise Malformed(f"there is no tool {name!r:.80}; the tools are {', '.join(sorted(names))}")
    parameters = call.get("arguments", call.get("parameters", {}))
    arguments = json_value(parameters) if isinstance(parameters, str) else parameters
    if not isinstance(arguments, dict):
        raise Malformed(f"arguments of {name}: expected a JSON object, got {type(arguments).__name__}")
    return {"name": name, "arguments": arguments}


def json_value(text: str) -> Any:
    """Parse the JSON value of a text. Raise `Malformed`, also for what other readers of JSON refuse."""
    try:
        parsed_value = json.loads(text, parse_constant=refuse, parse_float=finite)
        json.dumps(parsed_value, ensure_ascii=False).encode()
        return parsed_value
    except UnicodeEncodeError as error:
        raise Malformed("not valid JSON: it holds half of a surrogate pair, which is no character") from error
    except json.JSONDecodeError as error:
        raise Malformed(f"not valid JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise Malformed("not valid JSON: nested too deeply") from error
    except ValueError as error:
        raise Malformed(f"not valid JSON: {error}") from error


def finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else refuse(f"{digits:.40}")


def refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")
