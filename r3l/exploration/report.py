"""Reading a reflection: the outermost {...} of a reply, checked key by key (paper, reflection prompt)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, get_args

from r3l.errors import ReflectionError
from r3l.records import Outcome

TEXT_KEYS = ("trajectory_summary", "root_cause_analysis", "improvement_suggestion")
OUTCOMES = get_args(Outcome)
KEYS = 80  # tokens of a report's keys, outcome and pivot, about
SHORTEST = 20  # letters of a text, however short the reply


@dataclass(frozen=True, slots=True)
class Report:
    """A reflection that is valid for a trajectory of a given number of turns."""

    text: str  # the JSON as it stood in the reply: unknown keys and order are kept
    outcome: str
    pivot: int


def find_object(reply: str) -> str:
    """The outermost {...} of a reply; prose around it is allowed.

    Raises:
        ReflectionError: there is none.
    """
    begin, end = reply.find("{"), reply.rfind("}")
    if begin < 0 or end < begin:
        raise ReflectionError("no JSON object in the reply")
    return reply[begin : end + 1]


def fields(text: str) -> dict[str, Any]:
    """Raises `ReflectionError` where `text` is not a JSON object."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReflectionError(f"not valid JSON: {error.msg} at character {error.pos}") from error
    if not isinstance(found, dict):
        raise ReflectionError(f"expected a JSON object, got {type(found).__name__}")
    return found


def integer(value: object) -> int:
    """3, "3" and 3.0 are 3; anything else raises `ReflectionError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ReflectionError(f"retry_from_step: expected an integer, got {value!r:.80}")
    try:
        number = float(value)
    except ValueError as error:
        raise ReflectionError(f"retry_from_step: expected an integer, got {value!r:.80}") from error
    if not number.is_integer():
        raise ReflectionError(f"retry_from_step: expected an integer, got {value!r:.80}")
    return int(number)


def parse_report(reply: str, turns: int) -> Report:
    """A valid report on a trajectory of `turns` turns: 0 <= retry_from_step < turns (METHOD sections 1 and 6).

    Raises:
        ReflectionError: what is wrong, in words that go into the row's reason.
    """
    text = find_object(reply)
    found = fields(text)
    for key in TEXT_KEYS:
        if not isinstance(found.get(key), str):
            raise ReflectionError(f"{key}: expected text, got {found.get(key)!r:.80}")
    outcome = found.get("trajectory_outcome")
    if outcome not in OUTCOMES:
        raise ReflectionError(f"trajectory_outcome: expected one of {', '.join(OUTCOMES)}, got {outcome!r:.80}")
    pivot = integer(found.get("retry_from_step"))
    if not 0 <= pivot < turns:
        raise ReflectionError(f"retry_from_step: expected 0 to {turns - 1}, got {pivot}")
    return Report(text, str(outcome), pivot)


def report_schema(turns: int, tokens: int) -> dict[str, Any]:
    """The JSON schema of a report on `turns` turns, for engines that can be held to one. Its texts are short enough for a reply
    of `tokens` tokens to hold them all, at two letters a token: else a talkative policy is cut off before the JSON ends."""
    text = {"type": "string", "maxLength": max(SHORTEST, 2 * (tokens - KEYS) // len(TEXT_KEYS))}
    properties: dict[str, Any] = dict.fromkeys(("trajectory_summary", "root_cause_analysis"), text)
    properties["trajectory_outcome"] = {"enum": list(OUTCOMES)}
    properties["improvement_suggestion"] = text
    properties["retry_from_step"] = {"type": "integer", "minimum": 0, "maximum": turns - 1}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
