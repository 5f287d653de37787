"""Reading a reflection: the outermost {...} of a reply, checked key by key (paper, reflection prompt)."""

import json
import re
from dataclasses import dataclass
from typing import Any, get_args

from r3l.environments.replies import after_thought
from r3l.errors import ReflectionError
from r3l.records import Outcome

TEXT_KEYS = ("trajectory_summary", "root_cause_analysis", "improvement_suggestion")
OUTCOMES = get_args(Outcome)
KEYS = 80  # tokens of a report's keys, outcome and pivot, about
SHORTEST = 20  # letters of a text, however short the reply
DEEPEST = 64  # levels of nesting that a report may have: any reader of the stored report has room for them
LONGEST = 400  # digits of a number; no float64 has more before its point
QUOTED = re.compile(rf"\s*[+-]?\d{{1,{LONGEST}}}(\.0*)?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Report:
    """A reflection that is valid for a trajectory of a given number of turns."""

    text: str  # the JSON as it stood in the reply: unknown keys and order are kept
    outcome: str
    pivot: int


def find_object(reply: str) -> str:
    """Find the outermost {...} of a reply after its thought; prose around it is allowed.

    Raises:
        ReflectionError: there is none.
    """
    answer = after_thought(reply)
    begin, end = answer.find("{"), answer.rfind("}")
    if begin < 0 or end < begin:
        raise ReflectionError("no JSON object in the reply")
    return answer[begin : end + 1]


def fields(text: str) -> dict[str, Any]:
    """Parse the keys of the JSON object in `text`.

    Raises:
        ReflectionError: it is no JSON object, or one that other readers of JSON refuse: NaN or infinity, half a
            surrogate pair, nesting beyond `DEEPEST` levels, a number of more than `LONGEST` digits.
    """
    try:
        value = json.loads(text, parse_constant=refuse_constant, parse_int=whole_number)
        if depth(value) > DEEPEST:
            raise RecursionError
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ReflectionError(f"not valid JSON: nested more than {DEEPEST} levels deep") from error
    except json.JSONDecodeError as error:
        raise ReflectionError(f"not valid JSON: {error.msg} at character {error.pos}") from error
    except UnicodeEncodeError as error:
        raise ReflectionError("not valid JSON: it holds half of a surrogate pair, which is no character") from error
    if not isinstance(value, dict):
        raise ReflectionError(f"expected a JSON object, got {type(value).__name__}")
    return value


def refuse_constant(name: str) -> float:
    """Raise `ReflectionError` for NaN, Infinity and -Infinity, which Python reads and JSON does not know."""
    raise ReflectionError(f"not valid JSON: {name} is no number")


def whole_number(digits: str) -> int:
    """Parse an integer. Raise `ReflectionError` where it has more than `LONGEST` digits."""
    if len(digits) > LONGEST:
        raise ReflectionError(f"not valid JSON: a number of {len(digits)} digits")
    return int(digits)


def depth(value: object) -> int:
    """Count the levels of nesting of a JSON value: 1 for a number or a text."""
    levels, layer = 0, [value]
    while layer:
        levels += 1
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return levels


def integer(value: object) -> int:
    """Read an integer: 3, "3" and 3.0 are 3. Raise `ReflectionError` for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and QUOTED.fullmatch(value):
        return int(value.partition(".")[0])
    raise ReflectionError(f"retry_from_step: expected an integer, got {value!r:.80}")


def parse_report(reply: str, turns: int) -> Report:
    """Parse a valid report on a trajectory of `turns` turns: 0 <= retry_from_step < turns (paper, reflection
    prompt).

    Raises:
        ReflectionError: what is wrong, in words that go into the row's reason.
    """
    text = find_object(reply)
    keys = fields(text)
    for key in TEXT_KEYS:
        if not isinstance(keys.get(key), str):
            raise ReflectionError(f"{key}: expected text, got {keys.get(key)!r:.80}")
    outcome = keys.get("trajectory_outcome")
    if outcome not in OUTCOMES:
        raise ReflectionError(f"trajectory_outcome: expected one of {', '.join(OUTCOMES)}, got {outcome!r:.80}")
    pivot = integer(keys.get("retry_from_step"))
    if not 0 <= pivot < turns:
        raise ReflectionError(f"retry_from_step: expected 0 to {turns - 1}, got {pivot!r:.80}")
    return Report(text, str(outcome), pivot)


def report_schema(turns: int, tokens: int) -> dict[str, Any]:
    """Make the JSON schema of a report on `turns` turns, for engines that can be held to one. Its texts are short
    enough for a reply of `tokens` tokens to hold them all, at two letters a token: else a talkative policy is cut off
    before the JSON ends."""
    text = {"type": "string", "maxLength": max(SHORTEST, 2 * (tokens - KEYS) // len(TEXT_KEYS))}
    properties: dict[str, Any] = dict.fromkeys(("trajectory_summary", "root_cause_analysis"), text)
    properties["trajectory_outcome"] = {"enum": list(OUTCOMES)}
    properties["improvement_suggestion"] = text
    properties["retry_from_step"] = {"type": "integer", "minimum": 0, "maximum": turns - 1}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
