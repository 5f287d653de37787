"""Presets are small TOML files, one folder a section: they are composed, never multiplied."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from r3l.config.complaints import complaints, nearest_first, unknown
from r3l.config.model import Config
from r3l.errors import ConfigError

PRESETS = Path(__file__).parent.parent / "presets"
FOLDERS = ("models", "environments", "methods")


def preset_names(folder: str) -> list[str]:
    """Names of the presets in a folder of r3l/presets."""
    return sorted(path.stem for path in (PRESETS / folder).glob("*.toml"))


def load_preset(folder: str, name: str) -> dict[str, Any]:
    """The settings of one preset.

    Raises:
        ConfigError: there is no such preset; the message lists those that exist.
    """
    path = PRESETS / folder / f"{name}.toml"
    if not path.is_file():
        raise ConfigError(
            f"unknown preset {name!r} in {folder}: expected one of {', '.join(nearest_first(name, preset_names(folder)))}"
        )
    return tomllib.loads(path.read_text())


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` on top of `below`, section by section. A section of another `kind` replaces the one below."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        same_kind = (
            isinstance(under, dict)
            and isinstance(value, dict)
            and value.get("kind", under.get("kind")) == under.get("kind")
        )
        merged[key] = merge(under, value) if same_kind and isinstance(under, dict) else value
    return merged


def resolve_conditions(settings: dict[str, Any]) -> dict[str, Any]:
    """A preset's ``[when.webshop.method]`` table counts where the environment is of that kind, and nowhere else."""
    cases = settings.get("when", {})
    kind = settings.get("environment", {}).get("kind")
    return merge({key: value for key, value in settings.items() if key != "when"}, cases.get(kind, {}))


def assignment(text: str) -> dict[str, Any]:
    """``method.alpha=5`` as a nested dict; the value is JSON where it parses as JSON, else text.

    Raises:
        ConfigError: no equals sign, or no key.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: expected key=value, for example --set method.alpha=5")
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        parsed = value
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return parsed


def assigned(settings: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """``key=value`` assignments on top of settings, the last one first in rank. Raises `ConfigError` as `assignment`
    does."""
    for text in assignments:
        settings = merge(settings, assignment(text))
    return settings


def compose(
    *,
    model: str = "embedded",
    environment: str = "alfworld",
    method: str = "paper",
    machine: str = "",
    assignments: Iterable[str] = (),
    **top: Any,
) -> Config:
    """Presets of model, environment and method, and of a machine where one is named, then `top` settings, then
    ``key=value`` assignments.

    Raises:
        ConfigError: an unknown preset or setting, or a value out of bounds; names the value and what is expected.
    """
    settings: dict[str, Any] = {}
    for folder, name in zip(FOLDERS, (model, environment, method), strict=True):
        settings = merge(settings, load_preset(folder, name))
    if machine:
        settings = merge(
            settings, {key: value for key, value in load_preset("machines", machine).items() if key != "machine"}
        )
    settings = resolve_conditions(settings)
    settings = merge(settings, {key: value for key, value in top.items() if value is not None})
    return validated(assigned(settings, assignments))


def validated(settings: dict[str, Any]) -> Config:
    """A `Config`, or a `ConfigError` with a line for each thing that is wrong."""
    refuse_unknown(settings)
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(complaints(error)) from error


def refuse_unknown(settings: dict[str, Any]) -> None:
    """Union members ignore extras for the forms' sake; here, where a person types, a typo is refused."""
    kinds = {
        name: {"kind": part["kind"]} for name, part in settings.items() if isinstance(part, dict) and "kind" in part
    }
    try:
        defaults = Config.model_validate(kinds)
    except ValidationError:
        return  # an unknown kind: validation of the whole says so
    for name in ("method", "environment", "engine"):
        member = getattr(defaults, name)
        known = type(member).model_fields
        given = settings.get(name)
        for key in given if isinstance(given, dict) else ():
            if key not in known:
                raise ConfigError(f"{unknown([name, key], known)} (kind {member.kind})")
