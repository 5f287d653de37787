"""Messages about wrong settings, one line per fault: they use the names that were typed and list the nearest known
name first."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Any

from pydantic import BaseModel, ValidationError

from r3l import plugins
from r3l.config.engines import ENGINE_KINDS
from r3l.config.environments import ENVIRONMENT_KINDS
from r3l.config.methods import METHOD_KINDS
from r3l.config.model import Config
from r3l.config.section import value_text
from r3l.errors import ConfigError, did_you_mean

CLASSES = r"\[([^\]]+)\]|(\\d)|(,)"  # of characters in a pattern of the settings
SEVERAL = {kinds.section: kinds for kinds in (METHOD_KINDS, ENVIRONMENT_KINDS, ENGINE_KINDS)}


def nearest_first(name: str, names: Iterable[str]) -> list[str]:
    """Sort names: the most similar to `name` first, equally similar ones in alphabetical order."""
    return sorted(sorted(names), key=lambda one: -SequenceMatcher(None, name.lower(), one.lower()).ratio())


def complaints(error: ValidationError) -> str:
    """Write one line per fault."""
    return "\n  ".join(["these settings can't be used:", *map(complaint, error.errors())])  # type: ignore[arg-type]


def complaint(item: dict[str, Any]) -> str:
    """Say what is wrong in one fault: the setting as it is typed, the given value and what is expected."""
    place, value = as_typed(item["loc"]), item.get("input")
    name = ".".join(place)
    if item["type"] == "extra_forbidden":
        return unknown(place, fields(place[:-1]))
    if item["type"] in {"union_tag_invalid", "literal_error"}:
        kind_text = str(value.get("kind", "")) if isinstance(value, dict) else str(value)
        choices = re.findall(r"'([^']*)'", item["ctx"].get("expected_tags") or item["ctx"]["expected"])
        choices += plugins.installed(name) if item["type"] == "union_tag_invalid" else []
        if choices:
            setting = f"{name}.kind" if item["type"] == "union_tag_invalid" else name
            return f"{setting}: got {kind_text!r:.200}, expected one of {', '.join(nearest_first(kind_text, choices))}"
    if item["type"] == "string_pattern_mismatch":
        return f"{name}: {mismatch(str(value), item['ctx']['pattern'])}"
    fault = item.get("ctx", {}).get("error")
    if isinstance(fault, ConfigError):
        return str(fault)
    if fault and isinstance(value, dict):  # a section's settings contradict each other: the fault names them
        return f"{name}: {fault}"
    return f"{name}: {item['msg']} (got {value_text(value)})"


def mismatch(given: str, pattern: str) -> str:
    """Say which characters of a text its pattern does not have, or that they stand where they may not."""
    bare = re.sub(r"\{[^}]*\}", "", pattern)  # without counts, whose comma is none of the text's
    classes = "|".join(f"[{part}]" for groups in re.findall(CLASSES, bare) for part in groups if part)
    wrong = dict.fromkeys(letter for letter in given if not re.match(classes, letter))
    if wrong:
        return f"{given!r:.200} has {', '.join(map(repr, wrong))}; expected only characters of {classes}"
    first = next((at for at in range(1, len(given) + 1) if not re.match(pattern, given[:at])), 1)
    return f"{given!r:.200}: character {first} ({given[first - 1 : first]!r}) may not stand there; expected {pattern}"


def unknown(place: list[str], known: Iterable[str]) -> str:
    """Say that there is no such setting, and which there are."""
    *section, key = place
    known = list(known)
    there = ", ".join(nearest_first(key, known))
    where = f"{'.'.join(section)} has" if section else "expected one of"
    return f"{'.'.join(place)}: unknown setting; {where} {there}{did_you_mean(key, known)}"


def as_typed(loc: tuple[int | str, ...]) -> list[str]:
    """Write pydantic's location of a setting as a person types it: without the kind that pydantic adds after a section
    that has several kinds."""
    place = [str(part) for part in loc]
    several = SEVERAL.get(place[0]) if len(place) > 1 else None
    return [place[0], *place[2:]] if several and place[1] in several.names() else place


def fields(section: list[str]) -> Iterable[str]:
    """List the settings of a section, or the top-level settings if `section` is empty."""
    model: Any = Config
    for name in section:
        field = model.model_fields.get(name) if isinstance(model, type) and issubclass(model, BaseModel) else None
        model = field.annotation if field else None
    return model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else ()
