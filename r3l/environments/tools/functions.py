"""Python functions as tools: their JSON schema and their call, both by pydantic from signature and docstring."""

import inspect
import json
import re
from collections.abc import Callable, Sequence
from string import Template
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter, ValidationError, validate_call

from r3l.environments.base import Observation
from r3l.environments.replies import prompt_text
from r3l.errors import WorldError

Function = Callable[..., object]


class ToolError(Exception):
    """What a tool tells its caller in place of a result: raise it where the call makes no sense."""


def schema_of(function: Function) -> dict[str, Any]:
    """Describe a function as chat templates show it. Parameters are described by ``Annotated[int,
    Field(description=...)]``.

    Raises:
        WorldError: it has no name or docstring, or a parameter without a type that JSON has.
    """
    name, description = getattr(function, "__name__", ""), inspect.getdoc(function)
    if not name or not description:
        raise WorldError(f"tool {name or function!r}: expected a function with a name and a docstring")
    try:
        validator: Any = validate_call(function)
        parameters = TypeAdapter(validator).json_schema()
    except Exception as error:
        raise WorldError(f"tool {name}: its parameters have no JSON schema: {type(error).__name__}: {error}") from error
    if parameters.get("type") != "object":
        raise WorldError(f"tool {name}: expected parameters with names, got {json.dumps(parameters):.200}")
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": without_titles(parameters)},
    }


def without_titles(schema: Any) -> Any:
    """Drop pydantic's titles from the schema: they repeat the names."""
    if isinstance(schema, list):
        return [without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: without_titles(one) for key, one in schema.items() if not (key == "title" and isinstance(one, str))}


def call_tool(function: Function, arguments: dict[str, Any]) -> tuple[str, bool]:
    """Call a tool: the result as text, and whether it was a call that the tool could take.

    Anything but `ToolError` and arguments that don't fit is a fault of the tool, and raised as it comes.
    """
    name = getattr(function, "__qualname__", "")
    try:
        result = validate_call(function)(**arguments)
    except ValidationError as error:
        if error.title != name:
            raise  # of a model inside the tool
        return f"Error: {complaints(error)}", False
    except ToolError as error:
        return f"Error: {error}", False
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str), True


def complaints(error: ValidationError) -> str:
    errors = error.errors(include_url=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in errors)


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


class Toolset(Protocol):
    """One episode: an object is made without arguments for each, and copied for rollbacks. What its tools change is in
    the object.

    A class may have `mcp_servers`: addresses (``http://...``) and commands of MCP servers, whose tools come on top of
    its own. They are named in code, because settings also come from stores and forms. Each episode has sessions of its
    own: before `start` the object gets them as `servers`. So `start` brings a server to the task, and `score` asks it
    what was reached, by ``self.servers.call(name, arguments)``. What a server keeps can't be copied: rollbacks take
    the actions again. And it may have `paid()`: asked after each turn, what that turn is paid; a number or None.
    """

    @classmethod
    def tasks(cls, split: str, number: int, seed: int) -> Sequence[dict[str, Any]]:
        """List at most `number` tasks of the split train or heldout, as JSON values, the same ones for the same seed. A
        key ``type`` names the kind of the task."""
        ...

    def tools(self) -> Sequence[Function]:
        """List the functions, mostly methods: each with a docstring, types, and maybe ``Annotated[..., Field(...)]``.
        They return text or what JSON can hold, and raise `ToolError` where a call makes no sense."""
        ...

    def start(self, task: dict[str, Any]) -> str:
        """Begin a task, and say what the policy is asked."""
        ...

    def score(self, answer: str) -> float:
        """Score ending with this answer, in [0, 1]; "" where the episode is cut off."""
        ...
