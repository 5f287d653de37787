"""The differences between two presets: `r3l presets --diff a b`."""

from typing import Any

from r3l.config.compose import load_preset, merge, resolve_conditions, validate
from r3l.config.environments import ENVIRONMENT_KINDS
from r3l.system.nested import leaves

Difference = tuple[str, Any, Any]


def diff_presets(a: str, b: str, folder: str = "methods") -> list[Difference]:
    """List (setting, value in a, value in b) for every setting that differs; None where a preset lacks it.

    A difference in one environment only is named with the environment: ``environment.malformed_reward (webshop)``.

    Raises:
        ConfigError: There is no such preset.
    """
    kinds = ENVIRONMENT_KINDS.names()
    differences = {
        kind: between(leaves(all_settings(folder, a, kind)), leaves(all_settings(folder, b, kind))) for kind in kinds
    }
    everywhere = [one for one in differences[kinds[0]] if all(one in lines for lines in differences.values())]
    return everywhere + [
        (f"{name} ({kind})", left, right)
        for kind, lines in differences.items()
        for name, left, right in lines
        if (name, left, right) not in everywhere
    ]


def all_settings(folder: str, name: str, environment: str) -> dict[str, Any]:
    """Read every setting, with one preset on top of the defaults."""
    settings = merge({"environment": {"kind": environment}}, load_preset(folder, name))
    return validate(resolve_conditions(settings)).model_dump(mode="json")


def between(a: dict[str, Any], b: dict[str, Any]) -> list[Difference]:
    names = [*a, *(name for name in b if name not in a)]
    return [(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)]
