"""Presets are small TOML files in one folder per section. Settings are composed from them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from r3l import plugins
from r3l.config.complaints import SEVERAL, complaints, nearest_first, unknown
from r3l.config.model import Config
from r3l.errors import ConfigError
from r3l.system.nested import leaves

PRESETS = Path(__file__).parent.parent / "presets"
POLICY = "latent"  # preset of the policy that a run has where none is named
DEFAULTS = {"policies": POLICY, "environments": "alfworld", "methods": "paper"}  # of a new run; in this order
KINDED = ("method", "environment", "engine")  # sections of several kinds
OWN = {"policies": "policy", "environments": "environment", "methods": "method"}  # the section that a preset is about
PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.-]*")  # module:name, of a kind or of something that a setting names
SECTIONS = {"environments": "environment", "methods": "method"}  # of whose folders a plug-in may be named too


def preset_names(folder: str) -> list[str]:
    """List the presets in a folder of r3l/presets."""
    return sorted(path.stem for path in (PRESETS / folder).glob("*.toml"))


def load_preset(folder: str, name: str, files: bool = True) -> dict[str, Any]:
    """Read the settings of one preset: its name, or the path of a file that ends in .toml. In place of a preset of
    environments or methods, a plug-in: the name that an installed package gives it, or ``module:Class``. Without
    `files` no path is read: for names that a page sends.

    Raises:
        ConfigError: there is no such preset; the message lists those that exist. Or the file is no TOML, or lacks the
            section that it is read for.
    """
    path = Path(name).expanduser() if files and name.endswith(".toml") else PRESETS / folder / f"{name}.toml"
    section = SECTIONS.get(folder, "")
    plugin_names = plugins.installed(section) if section else {}
    if path.is_file() and (files or name in preset_names(folder)):
        if section and not name.endswith(".toml"):
            plugins.refuse_taken(section, name, [name])
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: a preset is a TOML file; this one can't be read: {error}") from error
        if section and section not in settings:
            raise ConfigError(
                f"{path}: a preset of {folder} has a section [{section}]; this one has {', '.join(settings) or 'none'}"
            )
        return settings
    if section and (plugins.is_dotted(name) or name in plugin_names):
        return {section: {"kind": name}}
    names = [*preset_names(folder), *plugin_names]
    raise ConfigError(
        f"unknown preset {name!r} in {folder}: expected one of {', '.join(nearest_first(name, names))}, or a file that "
        f"ends in .toml{', or module:Class' if section else ''}"
    )


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge `above` into `below`, section by section. A section of another `kind` replaces the one below; one of a kind
    that is derived from it (a world's class with a reward of one's own) keeps the settings that it knows."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(under, dict) and isinstance(value, dict):
            before = under.get("kind", "")
            kind = value.get("kind", before)
            if kind != before:
                common_names = SEVERAL[key].shared(str(kind), before) if key in SEVERAL and before else set()
                under = {name: under[name] for name in under if name in common_names}
            result[key] = merge(under, value)
        else:
            result[key] = value
    return result


def resolve_conditions(settings: dict[str, Any]) -> dict[str, Any]:
    """Apply a preset's ``[when.webshop.method]`` table if the environment is of that kind, or of one that is derived
    from it; drop it otherwise."""
    result = {key: value for key, value in settings.items() if key != "when"}
    kind = settings.get("environment", {}).get("kind")
    for case, table in settings.get("when", {}).items():
        if kind and (kind == case or SEVERAL["environment"].shared(kind, case)):
            result = merge(result, table)
    return result


def assignment(text: str) -> dict[str, Any]:
    """Read ``method.alpha=5`` as a nested dict. The value is JSON if it parses as JSON, otherwise text.

    Raises:
        ConfigError: The text has no equals sign or no key.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: expected key=value, for example --set method.alpha=5")
    try:
        json_value = json.loads(value)
    except (ValueError, RecursionError):  # no JSON, or more digits or brackets than Python reads
        json_value = value
    *sections, name = key.strip().split(".")
    settings: dict[str, Any] = {name: json_value}
    for section in reversed(sections):
        settings = {section: settings}
    return settings


def assign(settings: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply ``key=value`` assignments to settings; later ones win. Raise `ConfigError` as `assignment` does."""
    for text in assignments:
        settings = merge(settings, assignment(text))
    return settings


@dataclass(frozen=True)
class Asked:
    """What somebody asks of a run, without what they left open.

    Args:
        presets: those that are named, by folder; empty: not even the preset that a new run would have.
        settings: what is set on top of presets, section by section.
        of_page: a page sent it, so no name is the path of a file, and none lets code be imported.
    """

    presets: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    of_page: bool = False

    @classmethod
    def of(
        cls,
        *,
        policy: str = "",
        environment: str = "",
        method: str = "",
        machine: str = "",
        assignments: Iterable[str] = (),
        **top: Any,
    ) -> Asked:
        """Gather presets that are named, `top` settings that are not None, and ``key=value`` assignments on top of
        those."""
        preset_of_folder = {"policies": policy, "environments": environment, "methods": method, "machines": machine}
        top_settings = {key: value for key, value in top.items() if value is not None}
        return cls(
            {folder: name for folder, name in preset_of_folder.items() if name}, assign(top_settings, assignments)
        )

    def on(self, branch: str) -> Asked:
        """Ask the same of a branch."""
        return replace(self, settings={**self.settings, "branch": branch})


def refuse_contradictions(options: Mapping[str, tuple[str, Any]], assignments: Iterable[str]) -> None:
    """Raise `ConfigError` where an assignment sets what an option has set otherwise, or two assignments set one
    setting.

    Args:
        options: the setting and its value, by the option's name; without a value the option is not given.
    """
    setter_of = {
        name: (option, value) for option, (name, value) in options.items() if value is not None and value != ""
    }
    for text in assignments:
        for name, value in leaves(assignment(text)).items():
            option, before = setter_of.setdefault(name, (f"--set {text}", value))
            if before is not value and before != value:  # NaN is no other value than itself
                raise ConfigError(f"{option} ({name}={before}) and --set {text} contradict each other: leave one out")


def compose(**asked: Any) -> Config:
    """Compose a `Config` from what `Asked.of` takes: presets of policy, environment, method and (if named) machine,
    then the `top` settings, then ``key=value`` assignments. Later ones win.

    Raises:
        ConfigError: A preset or setting is unknown, or a value is out of bounds. The message names the value and what
            is expected.
    """
    return compose_asked(Asked.of(**asked))


def compose_asked(asked: Asked, stored: dict[str, Any] | None = None) -> Config:
    """Compose what is asked for on top of the `stored` settings of a run; of a new run, on top of the usual presets.

    Raises:
        ConfigError: as of `compose`.
    """
    allow_asked(asked)
    usual = Config()  # a section that is set without its kind has the first one that a form shows
    first = {name: {"kind": getattr(usual, name).kind} for name in KINDED if name in asked.settings}
    settings = dict(stored or first)
    for folder in DEFAULTS:
        if name := asked.presets.get(folder, "" if stored else DEFAULTS[folder]):
            preset = load_preset(folder, name, files=not asked.of_page)
            settings = with_preset(settings, OWN[folder], preset, asked.settings) if stored else merge(settings, preset)
    if machine := asked.presets.get("machines"):
        layout = load_preset("machines", machine, files=not asked.of_page)
        settings = merge(settings, {key: value for key, value in layout.items() if key != "machine"})
    parts = {name: part for name, part in asked.settings.items() if isinstance(part, dict)}
    kinds = {name: {"kind": part["kind"]} for name, part in parts.items() if "kind" in part}
    # A preset's `when` goes by the kind that is played in the end.
    settings = resolve_conditions(merge(settings, kinds))
    # What was asked for is merged again: a `when` table never overrides it.
    return validate(merge(settings, dict(asked.settings)))


def with_preset(
    stored: dict[str, Any], section: str, preset: dict[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge a preset into the `stored` settings of a run, on which settings that are `given` come later. A preset of
    what the run has already (the same policy's folder, a kind with the same settings) brings nothing else: its other
    sections were for the run's beginning."""
    own, over = {section: preset.get(section, {})}, {section: given.get(section, {})}
    with_own, present = (merge(below, over)[section] for below in (merge(stored, own), stored))
    if with_own == present or (section == "policy" and with_own["path"] == present["path"]):
        return stored
    world = preset.get("environment", {}).get("kind")
    foreign = section != "environment" and world is not None and world != stored["environment"]["kind"]
    return merge(stored, {key: value for key, value in preset.items() if not (foreign and key == "environment")})


def allow_asked(asked: Asked) -> None:
    """Let the dotted paths be imported that somebody named, in settings or in presets; those of a page stay refused."""
    if not asked.of_page:
        for part in (asked.settings, *(load_preset(folder, name) for folder, name in asked.presets.items() if name)):
            allow_named(part)


def allow_named(settings: Mapping[str, Any]) -> None:
    """Let the dotted paths be imported that these settings name: for settings that the user gave, never for stored
    ones."""
    for part in settings.values():
        for value in part.values() if isinstance(part, dict) else ():
            if isinstance(value, str) and PATH.fullmatch(value):
                plugins.allow(value)


def validate(settings: dict[str, Any]) -> Config:
    """Make a `Config` of settings, or raise a `ConfigError` with one line per fault."""
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
        fields = type(member).model_fields
        section = settings.get(name)
        for key in section if isinstance(section, dict) else ():
            if key not in fields:
                raise ConfigError(f"{unknown([name, key], fields)} (kind {member.kind})")
