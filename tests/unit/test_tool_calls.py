"""Calls in replies, in the Hermes form and as bare JSON; functions as schemas; what a malformed call is told."""

import json
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from r3l.environments.tools.calls import LONGEST_CALL, parse_calls
from r3l.environments.tools.functions import ToolError, call_tool, schema_of
from r3l.errors import WorldError

NAMES = ("find", "move")
FIND = '{"name": "find", "arguments": {"item": "lamps"}}'
FOUND = {"name": "find", "arguments": {"item": "lamps"}}


@pytest.mark.parametrize(("reply", "calls"), [
    (f"<tool_call>\n{FIND}\n</tool_call>", [FOUND]),
    (f"I look.\n<tool_call>{FIND}</tool_call>\n<tool_call>{FIND}</tool_call>", [FOUND, FOUND]),
    (f"<think>maybe <tool_call>no</think>\n<tool_call>{FIND}</tool_call>", [FOUND]),
    (FIND, [FOUND]),
    (f"```json\n{FIND}\n```", [FOUND]),
    (f"[{FIND}, {FIND}]", [FOUND, FOUND]),
    ('{"name": "find", "parameters": {"item": "lamps"}}', [FOUND]),
    ('<tool_call>{"name": "find", "arguments": "{\\"item\\": \\"lamps\\"}"}</tool_call>', [FOUND]),
    ('<tool_call>{"name": "find"}</tool_call>', [{"name": "find", "arguments": {}}]),
])  # fmt: skip
def test_tagged_and_bare_calls_are_parsed(reply: str, calls: list) -> None:
    found = parse_calls(reply, NAMES)
    assert found.valid
    assert json.loads(found.action) == {"calls": calls}


@pytest.mark.parametrize("reply", ["7", "There are 7 left.", '{"left": 7}', "<think>so</think>7", "[1, 2]"])
def test_a_reply_without_a_call_is_the_answer(reply: str) -> None:
    found = parse_calls(reply, NAMES)
    assert found.valid
    assert json.loads(found.action) == {"answer": reply.removeprefix("<think>so</think>")}


@pytest.mark.parametrize(("reply", "why"), [
    ("", "it is empty"),
    ("<think>hm</think>", "it is empty"),
    (f"<tool_call>{FIND}", "1 opening and 0 closing"),
    (f"{FIND}</tool_call>", "0 opening and 1 closing"),
    (
        f"<tool_call><tool_call>{FIND}</tool_call></tool_call>",
        "2 opening and 2 closing tool_call tags do not enclose",
    ),
    ('<tool_call>{"name": "find", </tool_call>', "not valid JSON: .* at character"),
    ('{"name": "find", "arguments": {"item": }}', "not valid JSON"),
    ('<tool_call>{"name": "find", "arguments": {"n": NaN}}</tool_call>', "NaN is no number"),
    (
        '<tool_call>{"name": "burn", "arguments": {}}</tool_call>',
        "there is no tool 'burn'; the tools are find, move",
    ),
    ('<tool_call>{"name": ["find"], "arguments": {}}</tool_call>', "there is no tool"),
    (
        '<tool_call>{"name": "find", "arguments": [1]}</tool_call>',
        "arguments of find: expected a JSON object, got list",
    ),
    ("<tool_call>7</tool_call>", "expected a JSON object, got int"),
    ("<tool_call>[]</tool_call>", "the list of calls is empty"),
    ("<tool_call>" + "[" * 10_000 + "]" * 10_000 + "</tool_call>", "nested too deeply|got list"),
    ("<tool_call>" + "7" * 5000 + "</tool_call>", "Exceeds the limit|got int"),
    ("<tool_call>" + " " * LONGEST_CALL + "7</tool_call>", "characters, of which"),
])  # fmt: skip
def test_a_malformed_call_is_a_turn_with_an_error(reply: str, why: str) -> None:
    found = parse_calls(reply, NAMES)
    assert (found.valid, found.action) == (False, "")
    with pytest.raises(WorldError, match=why):
        raise WorldError(found.error)
    assert len(found.error) < 400
    assert "<tool_call>" not in found.error


class Inner(BaseModel):
    number: int


class Desk:
    def add(self, a: Annotated[int, Field(description="first", ge=0)], b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    def say(self, how: Literal["loud", "low"], words: list[str]) -> str:
        """Say words."""
        if not words:
            raise ToolError("nothing to say")
        return " ".join(words).upper() if how == "loud" else " ".join(words)

    def broken(self) -> str:
        """Break inside."""
        return str(Inner(number="x"))

    def silent(self, a: int) -> int:
        return a

    def strange(self, a: object.__class__) -> int:
        """Take a type."""
        return 1

    def positional(self, a: int, /) -> int:
        """Take a number without a name."""
        return a


def test_a_function_becomes_its_schema() -> None:
    assert schema_of(Desk().add) == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "a": {"type": "integer", "minimum": 0, "description": "first"},
                    "b": {"type": "integer", "default": 1},
                },
                "required": ["a"],
            },
        },
    }


@pytest.mark.parametrize(
    ("name", "why"),
    [("silent", "a docstring"), ("strange", "no JSON schema"), ("positional", "expected parameters with names")],
)
def test_a_function_that_is_no_tool_says_why(name: str, why: str) -> None:
    with pytest.raises(WorldError, match=why):
        schema_of(getattr(Desk(), name))


@pytest.mark.parametrize(("name", "arguments", "text", "accepted"), [
    ("add", {"a": 2, "b": 3}, "5", True),
    ("add", {"a": 2}, "3", True),
    ("say", {"how": "loud", "words": ["é", "x"]}, "É X", True),
    ("say", {"how": "loud", "words": []}, "Error: nothing to say", False),
    ("add", {"a": -1}, "Error: a: Input should be greater than or equal to 0", False),
    ("add", {}, "Error: a: Missing required argument", False),
    ("add", {"a": 1, "c": 2}, "Error: c: Unexpected keyword argument", False),
    ("say", {"how": "high", "words": []}, "Error: how: Input should be 'loud' or 'low'", False),
])  # fmt: skip
def test_a_call_is_answered_by_its_arguments(name: str, arguments: dict, text: str, accepted: bool) -> None:
    assert call_tool(getattr(Desk(), name), arguments) == (text, accepted)


def test_a_fault_inside_a_tool_is_no_mistake_of_the_policy() -> None:
    with pytest.raises(ValidationError, match="Inner"):
        call_tool(Desk().broken, {})
