"""A rollout of another package, as its reader tells it."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from r3l.errors import StoreError
from r3l.records import Status
from r3l.records.column import LARGEST

LARGEST_ID = 2**31 - 1  # which a column of token ids holds


class Tokens(NamedTuple):
    """A sequence; all of them aligned with `ids`. `logprobs` are NaN where none is told, `advantages` None."""

    ids: list[int]
    trained: list[bool]
    logprobs: list[float]
    advantages: list[float] | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One attempt. `turns`: what was seen, and the reply; `advantage`: None where it is not told; `group`: what the
    attempts at a task have in common, where it is not the prompt; `about`: what else is told of its task."""

    step: int
    prompt: str
    turns: Sequence[tuple[str, str]]
    reward: float
    advantage: float | None = None
    about: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    tokens: Tokens | None = None
    status: Status = Status.COMPLETED


def as_text(prompt: str | Sequence[dict[str, Any]]) -> str:
    """Write a prompt, which may be a conversation, as one text."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return content_of(prompt[0])
    return "\n\n".join(f"{one.get('role')}: {content_of(one)}" for one in prompt)


def content_of(message: dict[str, Any]) -> str:
    """Write the content of a message; of one in parts (a text, a picture) its texts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in content)


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
            seen.append(content_of(message))
    return turns


def reply_of(message: dict[str, Any]) -> str:
    """Write what the assistant said; calls of tools stand behind it."""
    calls = message.get("tool_calls")
    return content_of(message) + (f"\n{list(calls)}" if calls is not None and len(calls) else "")


def number(row: dict[str, Any], name: str, place: str) -> float:
    """Read a finite number of a row, which a column of 32 bits can hold. Raise `StoreError` where there is none."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        raise StoreError(f"{place}: {name} is {value!r:.80}, expected a finite number of at most {LARGEST:.3g}")
    return float(value)


def tokens_of(
    place: str,
    ids: Sequence[Any],
    mask: Sequence[Any],
    logprobs: Sequence[Any] | None = None,
    advantages: Sequence[Any] | None = None,
) -> Tokens:
    """Check a sequence, all of whose lists are aligned with its ids. Raise `StoreError` where they are not, or hold
    something else than ids, 0 and 1, and numbers."""
    told = {"mask": mask, "logprobs": logprobs, "advantages": advantages}
    for name, values in told.items():
        if values is not None and len(values) != len(ids):
            raise StoreError(f"{place}: {name} has {len(values)} values for {len(ids)} token ids")
    if wrong := [one for one in ids if type(one) is not int or not 0 <= one <= LARGEST_ID]:
        raise StoreError(f"{place}: {wrong[0]!r:.80} is no token id; expected a whole number from 0 to {LARGEST_ID}")
    if wrong := [one for one in mask if one not in (0, 1)]:
        raise StoreError(f"{place}: the mask holds {wrong[0]!r:.80}, expected 0 or 1")
    if wrong := [one for one in advantages or () if not -LARGEST <= one <= LARGEST]:
        raise StoreError(f"{place}: an advantage is {wrong[0]!r:.80}, expected a finite number")
    likely = [math.nan if one is None else float(one) for one in logprobs or [None] * len(ids)]
    worth = None if advantages is None else [float(one) for one in advantages]
    return Tokens(list(ids), [bool(one) for one in mask], likely, worth)


def json_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the object of each line. Raise `StoreError` where a line is none."""
    try:
        with file.open(encoding="utf-8") as lines:
            for place, line in enumerate(lines, 1):
                where = f"{file}, line {place}"
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise StoreError(f"{where}: no JSON ({error})") from error
                if not isinstance(row, dict):
                    raise StoreError(f"{where}: expected an object, got {type(row).__name__}")
                yield where, row
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: can't be read as text ({error})") from error
