"""Settings that are numbers. Their bounds stand once, and are both checked and told."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a number may be: in words, and as pydantic checks it."""

    words: str
    limits: dict[str, Any]


def within(low: float, high: float) -> Bounds:
    return Bounds(f"{plain(low)} to {plain(high)}", {"ge": low, "le": high})


def above(low: float, high: float) -> Bounds:
    return Bounds(f"above {plain(low)}, up to {plain(high)}", {"gt": low, "le": high})


def below(low: float, high: float) -> Bounds:
    return Bounds(f"{plain(low)} to below {plain(high)}", {"ge": low, "lt": high})


def between(low: float, high: float) -> Bounds:
    return Bounds(f"above {plain(low)}, below {plain(high)}", {"gt": low, "lt": high})


def plain(bound: float) -> str:
    return str(bound).removesuffix(".0")


def number(default: Any, bounds: Bounds, text: str, extra: dict[str, Any] | None = None, **more: Any) -> Any:
    """Make the field of a number. `{}` in its text stands for the bounds; `extra`: as of `identity_of`."""
    description = text.replace("{}", bounds.words)
    return Field(default, description=description, json_schema_extra=extra, **bounds.limits, **more)
