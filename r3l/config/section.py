"""The base of every section: unknown keys are refused, so that a typo never runs."""

from typing import Any

from pydantic import BaseModel, ConfigDict


def title(section: type) -> str:
    """What forms call it: Policy, not PolicySettings."""
    return section.__name__.removesuffix("Settings")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, model_title_generator=title)


class Member(Section):
    """A member of a union (tabs in a form). A form may keep the keys of the tab left behind, so extras are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, validate_default=True, model_title_generator=title)


def any_of(schema: dict[str, Any]) -> None:
    """Show a discriminated union as tabs: Prefect's forms know `anyOf`, not `oneOf` with a discriminator."""
    schema.pop("discriminator", None)
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
