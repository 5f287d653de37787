"""The base of every section. It refuses unknown keys, so that a typo is an error. Each setting says which stages it
belongs to."""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Words that are not written as they stand in a name; one that ends a name may be a unit.
WRITTEN = {
    "kl": "KL",
    "sft": "SFT",
    "rl": "RL",
    "lora": "LoRA",
    "api": "API",
    "urls": "URLs",
    "adamw": "AdamW",
    "mlflow": "MLflow",
    "tensorboard": "TensorBoard",
    "wandb": "Weights & Biases",
    "trackio": "Trackio",
    "beta1": "AdamW beta 1",
    "beta2": "AdamW beta 2",
    "env": "environment variable",
    "heldout": "held-out",
    "dtype": "number format",
}
UNITS = {"s": "(seconds)", "mb": "(MB)"}
SECTIONS = {
    "Alfworld": "ALFWorld",
    "Math": "Math",
    "ReflectGRPO": "Reflect-GRPO",
    "CritiqueGRPO": "Critique-GRPO",
    "AgentRLVR": "Agent-RLVR",
    "TransformersLocal": "Embedded (transformers)",
    "VllmServer": "vLLM servers",
}


def section_title(section: type) -> str:
    """Entitle a section: Policy, not PolicySettings."""
    name = section.__name__.removesuffix("Settings")
    return SECTIONS.get(name, name)


def setting_title(name: str, _: Any) -> str:
    """Entitle a setting: KL coefficient, not kl_coefficient."""
    words = name.split("_")
    last = UNITS.get(words[-1], "") if len(words) > 1 else ""
    title = " ".join(WRITTEN.get(word, word) for word in (words[:-1] if last else words))
    return f"{title[:1].upper()}{title[1:]} {last}".rstrip()


T = TypeVar("T")
LARGEST = 2**63 - 1  # what the widest column of whole numbers holds, and so the largest seed
WEEK_S = 7 * 24 * 3600.0  # the longest time that anything is waited for


def identity_of(*stages: str, later: bool = False) -> dict[str, Any]:
    """Mark the stages whose identity a field belongs to: ``Field(..., json_schema_extra=identity_of("base"))``.

    Without a stage the field belongs to none, because it changes no stored row. A field without this mark belongs to
    the stages of its section.

    Args:
        later: stages were stored before there was the setting. Its default does what they did, and is left out.
    """
    return {"identity": list(stages), **({"later": True} if later else {})}


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        model_title_generator=section_title,
        field_title_generator=setting_title,
    )
    IDENTITY_OF: ClassVar[tuple[str, ...] | None] = None  # the stages that the section's settings belong to; None: all

    @model_validator(mode="after")
    def refuse_numbers_that_no_table_holds(self) -> Self:
        """Look at every number: fields of plug-ins and the values in `options` may have no bounds."""
        for name in type(self).model_fields:
            for place, number in numbers_in(name, getattr(self, name)):
                if not (abs(number) <= LARGEST if isinstance(number, int) else math.isfinite(number)):
                    raise ValueError(f"{place}: expected a finite number of at most 64 bits, got {value_text(number)}")
        return self


def value_text(value: object) -> str:
    """Write a value as a message shows it: Python writes out no integer of more than 4,300 digits."""
    if isinstance(value, int) and value.bit_length() > 4_096:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.200}"


def numbers_in(place: str, value: Any) -> Iterator[tuple[str, int | float]]:
    """Yield the numbers in a setting, each with its place. A section in it has looked at its own."""
    if isinstance(value, int | float):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(f"{place}.{key}", inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for number, inner in enumerate(value):
            yield from numbers_in(f"{place}.{number}", inner)


class Member(Section):
    """Settings of one kind of several. Extras are ignored here, because stored settings may hold those of another kind;
    `compose.refuse_unknown` refuses them in what a person writes."""

    model_config = ConfigDict(extra="ignore")

    kind: str = Field("", description="Which one it is; for a plug-in its name, or module:Class.")


def from_settings(kind: Callable[..., T], *sections: Section, **more: Any) -> T:
    """Make a dataclass whose fields have the names of settings. Each field is taken from the section that has it.

    Args:
        more: the fields that no setting gives, and those that differ from the setting of their name.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values = {name: getattr(one, name) for one in sections for name in names if name in type(one).model_fields}
    return kind(**(values | more))


def stages_of(section: type[Section], field: str) -> tuple[str, ...] | None:
    """Name the stages whose identity a field is part of: by the field's own mark, else by its section's; None: all
    stages."""
    extra = section.model_fields[field].json_schema_extra
    mark = extra.get("identity") if isinstance(extra, dict) else None
    return tuple(map(str, mark)) if isinstance(mark, list | tuple) else section.IDENTITY_OF


def belongs(section: type[Section], field: str, stage: str) -> bool:
    """Tell whether a field is part of a stage's identity."""
    stages = stages_of(section, field)
    return stages is None or stage in stages


def is_silent(section: type[Section], field: str, value: object) -> bool:
    """Tell whether a setting that came later has the value that stands for what was done before it."""
    extra = section.model_fields[field].json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("later")) and value == section.model_fields[field].default


def settings_of(section: Section, stage: str) -> dict[str, Any]:
    """Collect the settings that are part of a stage's identity, as JSON values, without empty sections."""
    settings: dict[str, Any] = {}
    for name, value in section.model_dump(mode="json").items():
        part = getattr(section, name)
        if isinstance(part, Section):
            settings |= {name: of_part} if (of_part := settings_of(part, stage)) else {}
        elif belongs(type(section), name, stage) and not is_silent(type(section), name, part):
            settings[name] = value
    return settings
