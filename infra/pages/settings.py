"""The reference of all settings: data/SETTINGS.md, made from the settings themselves."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from r3l.config.kinds import Kinds
from r3l.config.model import Config
from r3l.config.section import Section, belongs
from r3l.stages import STAGES
from r3l.system.visible import table_cell

HEAD = """# Settings

Made by `python -m infra.pages.settings` from `r3l/config/`; a test keeps it so. Set one with `--set method.alpha=5`, in a preset's TOML
file, in Prefect's form, or in Python: `r3l.compose(settings={"method.alpha": 5})`. Presets of policies, environments, methods and machines
are in `r3l/presets/`; `r3l presets` lists them. A plug-in has settings of its own: see Plug-ins in `CONTRIBUTING.md`.

The column *stages* lists the stages whose identity the setting belongs to. If the value changes, these stages and those made from them are
computed anew. "–": no stored row depends on the setting. A method's settings also belong to the sampled stages if they change what the method
samples (its plan).
"""
TABLE = "| setting | type | default | bounds | meaning | stages |\n|---|---|---|---|---|---|"
BOUNDS = {
    "gt": "> {:g}",
    "ge": "≥ {:g}",
    "lt": "< {:g}",
    "le": "≤ {:g}",
    "multiple_of": "a multiple of {:g}",
    "pattern": "`{}`",
}
WORDS = {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "NoneType": "empty"}


def page() -> str:
    stages = list(STAGES)
    sections = [part for name, field in Config.model_fields.items() for part in parts(name, field)]
    whole = table("", {name: field for name, field in Config.model_fields.items() if scalar(field)}, Config, stages)
    return "\n".join(
        [HEAD, "## The run", "", whole, *(line for part in sections for line in section_lines(*part, stages)), ""]
    )


def scalar(field: FieldInfo) -> bool:
    return not (isinstance(field.annotation, type) and issubclass(field.annotation, Section))


def parts(name: str, field: FieldInfo) -> Iterator[tuple[str, str, str, type[Section], type[Section] | None]]:
    """Yield (heading, section, what it is, its class, the class whose settings it repeats) for a field of `Config`."""
    if scalar(field):
        return
    section: Any = field.annotation
    several = next((one for one in field.metadata if isinstance(one, Kinds)), None)
    yield f"## {name}", name, field.description or "", section, None
    for kind in several.own if several else ():
        is_kind = kind.model_fields["kind"].default
        yield (
            f'### {name}.kind = "{is_kind}"',
            name,
            "Settings that only this kind has, or whose default or meaning differs from those above.",
            kind,
            section,
        )


def section_lines(
    heading: str, name: str, about: str, section: type[Section], base: type[Section] | None, stages: list[str]
) -> list[str]:
    """Write the lines of one section; of a kind only what differs from `base`."""
    base_fields = base.model_fields if base else {}
    fields = {
        key: field
        for key, field in section.model_fields.items()
        if key != "kind" and (key not in base_fields or row(base_fields[key]) != row(field))
    }
    body = table(f"{name}.", fields, section, stages) if fields else "No further settings."
    return ["", heading, "", about, "", body]


def table(prefix: str, fields: dict[str, FieldInfo], section: type[Section], stages: list[str]) -> str:
    lines = [TABLE]
    for name, field in fields.items():
        kind, default, limits, meaning = row(field)
        part = [stage for stage in stages if belongs(section, name, stage)]
        stage_names = "all" if part == stages else ", ".join(part) or "–"
        lines.append(f"| `{prefix}{name}` | {kind} | {default} | {limits} | {meaning} | {stage_names} |")
    return "\n".join(lines)


def row(field: FieldInfo) -> tuple[str, str, str, str]:
    """Write type, default, bounds and meaning in words."""
    default = field.get_default(call_default_factory=True, validated_data={})
    shown_default = (
        ""
        if default in (None, "", (), [])
        else f"`{str(default).lower() if default is True or default is False else default}`"
    )
    limits = [
        pattern.format(value)
        for one in field.metadata
        for name, pattern in BOUNDS.items()
        if (value := getattr(one, name, None)) is not None
    ]
    meaning = " ".join((field.description or "").split())
    return (
        table_cell(type_name(field.annotation)),
        table_cell(shown_default),
        table_cell(", ".join(limits)),
        table_cell(meaning),
    )


def type_name(annotation: Any) -> str:
    """Write a type in words: choices as they are typed, lists of what they hold."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in inner)
    if origin in (Union, UnionType):
        return " or ".join(type_name(one) for one in sorted(inner, key=lambda one: one is NoneType))
    if origin in (list, tuple):
        return f"list of {type_name(inner[0])}"
    return WORDS.get(getattr(annotation, "__name__", ""), str(annotation))


if __name__ == "__main__":
    print(page(), end="")
