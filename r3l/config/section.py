"""The base of every section: unknown keys are refused, so that a typo never runs. A setting says which stages it is
part of."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


def title(section: type) -> str:
    """What forms call it: Policy, not PolicySettings."""
    return section.__name__.removesuffix("Settings")


def identity_of(*stages: str) -> dict[str, Any]:
    """Say at a field which stages' identity it belongs to, as ``Field(..., json_schema_extra=identity_of("base"))``.

    Without a stage it belongs to none: changing it changes no stored row. A field that does not say belongs to the
    stages of its section.
    """
    return {"identity": list(stages)}


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, model_title_generator=title)
    IDENTITY_OF: ClassVar[tuple[str, ...] | None] = None  # the stages that the section's settings belong to; None: all


class Member(Section):
    """A member of a union (tabs in a form). A form may keep the keys of the tab left behind, so extras are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, validate_default=True, model_title_generator=title)


def belongs(section: type[Section], field: str, stage: str) -> bool:
    """Whether the field is part of the stage's identity: by what it says itself, else by what its section says."""
    extra = section.model_fields[field].json_schema_extra
    said = extra.get("identity") if isinstance(extra, dict) else None
    stages = section.IDENTITY_OF if said is None else said
    return stages is None or (isinstance(stages, list | tuple) and stage in stages)


def settings_of(section: Section, stage: str) -> dict[str, Any]:
    """The settings that are part of a stage's identity, as JSON values; sections without any are left out."""
    found: dict[str, Any] = {}
    for name, value in section.model_dump(mode="json").items():
        part = getattr(section, name)
        if isinstance(part, Section):
            found |= {name: of_part} if (of_part := settings_of(part, stage)) else {}
        elif belongs(type(section), name, stage):
            found[name] = value
    return found


def any_of(schema: dict[str, Any]) -> None:
    """Show a discriminated union as tabs: Prefect's forms know `anyOf`, not `oneOf` with a discriminator."""
    schema.pop("discriminator", None)
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
