"""Python functions as tools: their JSON schema and their call, both by pydantic from signature and docstring."""

import inspect
import json
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError, validate_call

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
