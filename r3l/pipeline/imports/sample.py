"""A rollout of another package, as its reader tells it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from r3l.errors import StoreError


@dataclass(frozen=True, slots=True)
class Sample:
    """One attempt. `turns`: what was seen, and the reply; `advantage`: None where it is not told; `about`: what else is
    told of its task."""

    step: int
    prompt: str
    turns: Sequence[tuple[str, str]]
    reward: float
    advantage: float | None = None
    about: dict[str, Any] = field(default_factory=dict)


def as_text(prompt: str | Sequence[dict[str, Any]]) -> str:
    """Write a prompt, which may be a conversation, as one text."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return str(prompt[0].get("content") or "")
    return "\n\n".join(f"{one.get('role')}: {one.get('content') or ''}" for one in prompt)


def turns_of(prompt: str, completion: str | Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Part a completion, which may be a conversation with tools, into turns: what came since the last reply, and the
    reply."""
    if isinstance(completion, str):
        return [(prompt, completion)]
    turns: list[tuple[str, str]] = []
    seen = [prompt]
    for message in completion:
        if message.get("role") == "assistant":
            turns.append(("\n".join(seen), reply_of(message)))
            seen = []
        else:
            seen.append(str(message.get("content") or ""))
    return turns


def reply_of(message: dict[str, Any]) -> str:
    """Write what the assistant said; calls of tools stand behind it."""
    calls = message.get("tool_calls")
    return str(message.get("content") or "") + (f"\n{list(calls)}" if calls is not None and len(calls) else "")


def number(row: dict[str, Any], name: str, place: str) -> float:
    """Read a number of a row. Raise `StoreError` where there is none."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StoreError(f"{place}: {name} is {value!r:.80}, expected a number")
    return float(value)
