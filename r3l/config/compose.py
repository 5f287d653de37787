"""Presets are small TOML files in one folder per section. Settings are composed from them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from r3l import plugins
from r3l.config.complaints import complaints, nearest_first, unknown
from r3l.config.model import Config
from r3l.errors import ConfigError

PRESETS = Path(__file__).parent.parent / "presets"
POLICY = "latent"  # preset of the policy that a run has where none is named
FOLDERS = ("policies", "environments", "methods")
PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.-]*")  # module:name, of a kind or of something that a setting names
SECTIONS = {"environments": "environment", "methods": "method"}  # of whose folders a plug-in may be named too


def preset_names(folder: str) -> list[str]:
    """Return the names of the presets in a folder of r3l/presets."""
    return sorted(path.stem for path in (PRESETS / folder).glob("*.toml"))


def load_preset(folder: str, name: str, files: bool = True) -> dict[str, Any]:
    """Return the settings of one preset: its name, or the path of a file that ends in .toml. In place of a preset of
    environments or methods, a plug-in: the name that an installed package gives it, or ``module:Class``. Without
    `files` no path is read: for names that a page sends.

    Raises:
        ConfigError: there is no such preset; the message lists those that exist. Or the file is no TOML.
    """
    path = Path(name).expanduser() if files and name.endswith(".toml") else PRESETS / folder / f"{name}.toml"
    section = SECTIONS.get(folder, "")
    offered = plugins.installed(section) if section else {}
    if path.is_file() and (files or name in preset_names(folder)):
        if section and not name.endswith(".toml"):
            plugins.refuse_taken(section, name, [name])
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: a preset is a TOML file; this one can't be read: {error}") from error
    if section and (plugins.dotted(name) or name in offered):
        return {section: {"kind": name}}
    known = [*preset_names(folder), *offered]
    raise ConfigError(
        f"unknown preset {name!r} in {folder}: expected one of {', '.join(nearest_first(name, known))}, or a file that "
        f"ends in .toml{', or module:Class' if section else ''}"
    )


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge `above` into `below`, section by section. A section of another `kind` replaces the one below."""
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
    """Apply a preset's ``[when.webshop.method]`` table if the environment is of that kind; drop it otherwise."""
    cases = settings.get("when", {})
    kind = settings.get("environment", {}).get("kind")
    return merge({key: value for key, value in settings.items() if key != "when"}, cases.get(kind, {}))


def assignment(text: str) -> dict[str, Any]:
    """Return ``method.alpha=5`` as a nested dict. The value is JSON if it parses as JSON, otherwise text.

    Raises:
        ConfigError: The text has no equals sign or no key.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: expected key=value, for example --set method.alpha=5")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):  # no JSON, or more digits or brackets than Python reads
        parsed = value
    *sections, name = key.strip().split(".")
    nested: dict[str, Any] = {name: parsed}
    for section in reversed(sections):
        nested = {section: nested}
    return nested


def assigned(settings: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply ``key=value`` assignments to settings; later ones win. Raise `ConfigError` as `assignment` does."""
    for text in assignments:
        settings = merge(settings, assignment(text))
    return settings


def compose(
    *,
    policy: str = POLICY,
    environment: str = "alfworld",
    method: str = "paper",
    machine: str = "",
    assignments: Iterable[str] = (),
    **top: Any,
) -> Config:
    """Compose a `Config`: presets of policy, environment, method and (if named) machine, then the `top` settings, then
    ``key=value`` assignments. Later ones win.

    Raises:
        ConfigError: A preset or setting is unknown, or a value is out of bounds. The message names the value and what
            is expected.
    """
    settings: dict[str, Any] = {}
    for folder, name in zip(FOLDERS, (policy, environment, method), strict=True):
        settings = merge(settings, load_preset(folder, name))
    if machine:
        settings = merge(
            settings, {key: value for key, value in load_preset("machines", machine).items() if key != "machine"}
        )
    settings = resolve_conditions(settings)
    settings = merge(settings, {key: value for key, value in top.items() if value is not None})
    settings = assigned(settings, assignments)
    allow_named(settings)
    return validated(settings)


def allow_named(settings: dict[str, Any]) -> None:
    """Let the dotted paths be imported that these settings name: for settings that the user gave, never for stored
    ones."""
    for part in settings.values():
        for value in part.values() if isinstance(part, dict) else ():
            if isinstance(value, str) and PATH.fullmatch(value):
                plugins.allow(value)


def validated(settings: dict[str, Any]) -> Config:
    """Return a `Config`, or raise a `ConfigError` with one line per fault."""
    refuse_unknown(settings)
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(complaints(error)) from error


def refuse_unknown(settings: dict[str, Any]) -> None:
    """Raise `ConfigError` for an unknown setting of a union member. The members themselves ignore unknown keys."""
    kinds = {
        name: {"kind": part["kind"]} for name, part in settings.items() if isinstance(part, dict) and "kind" in part
    }
    try:
        defaults = Config.model_validate(kinds)
    except ValidationError:
        return  # an unknown kind: the validation of all settings reports it
    for name in ("method", "environment", "engine"):
        member = getattr(defaults, name)
        known = type(member).model_fields
        given = settings.get(name)
        for key in given if isinstance(given, dict) else ():
            if key not in known:
                raise ConfigError(f"{unknown([name, key], known)} (kind {member.kind})")
