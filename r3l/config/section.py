"""The base of every section. It refuses unknown keys, so that a typo is an error. Each setting says which stages it
belongs to."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from r3l.config.titles import section_title, setting_title

T = TypeVar("T")


def identity_of(*stages: str) -> dict[str, Any]:
    """Return name the stages whose identity a field belongs to: ``Field(..., json_schema_extra=identity_of("base"))``.

    Without a stage the field belongs to none, because it changes no stored row. A field without this mark belongs to
    the stages of its section.
    """
    return {"identity": list(stages)}


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        model_title_generator=section_title,
        field_title_generator=setting_title,
    )
    IDENTITY_OF: ClassVar[tuple[str, ...] | None] = None  # the stages that the section's settings belong to; None: all


class Member(Section):
    """A member of a union, shown as tabs in a form. A form may send the keys of another tab, so extras are ignored."""

    model_config = ConfigDict(extra="ignore")

    kind: str = Field("", description="Which one it is; for a plug-in its name, or module:Class.")


def taken(kind: Callable[..., T], *sections: Section, **more: Any) -> T:
    """Make a dataclass whose fields have the names of settings. Each field is taken from the section that has it.

    Args:
        more: the fields that no setting gives, and those that differ from the setting of their name.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    found = {name: getattr(one, name) for one in sections for name in names if name in type(one).model_fields}
    return kind(**(found | more))


def belongs(section: type[Section], field: str, stage: str) -> bool:
    """Return whether a field is part of a stage's identity: by the field's own mark, else by its section's."""
    extra = section.model_fields[field].json_schema_extra
    said = extra.get("identity") if isinstance(extra, dict) else None
    stages = section.IDENTITY_OF if said is None else said
    return stages is None or (isinstance(stages, list | tuple) and stage in stages)


def settings_of(section: Section, stage: str) -> dict[str, Any]:
    """Return the settings that are part of a stage's identity, as JSON values, without empty sections."""
    settings: dict[str, Any] = {}
    for name, value in section.model_dump(mode="json").items():
        part = getattr(section, name)
        if isinstance(part, Section):
            settings |= {name: of_part} if (of_part := settings_of(part, stage)) else {}
        elif belongs(type(section), name, stage):
            settings[name] = value
    return settings
