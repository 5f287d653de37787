"""What the form of a flow asks for: few choices, each a preset's name or, in another tab, all settings of a section."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, TypeAdapter, model_validator
from pydantic_core import CoreSchema, core_schema

from r3l.config.compose import Asked, preset_names
from r3l.config.engines import AnyEngine
from r3l.config.environments import AnyEnvironment
from r3l.config.methods import AnyMethod
from r3l.config.model import Config
from r3l.config.section import Section
from r3l.config.sections import (
    EvaluationSettings,
    PlacementSettings,
    PolicySettings,
    RolloutSettings,
    StoreSettings,
    TrackingSettings,
)
from r3l.config.training import TrainingSettings

Settings = dict[str, Any]
HERE = "as the run has it"
AS_THE_RUN = "As the run has it"
PRESETS = {"policy": "policies", "environment": "environments", "method": "methods"}  # in the order of `compose`
SCALARS = ("run", "iteration", "branch", "change", "seed", "machine")


@dataclass(frozen=True)
class Tabs:
    """The JSON schema of a value that is a preset's name or settings of `of`, or those of neither: Prefect's forms
    show tabs and have no folds, so a first tab without settings is the fold."""

    of: Any
    presets: str = ""
    empty: str = ""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> Settings:
        schema = TypeAdapter(self.of).core_schema
        if schema["type"] == "function-wrap":  # several kinds: the handler asks only inner schemas for plug-ins' tabs
            schema = core_schema.with_default_schema(schema)
        whole = handler(schema)
        whole.pop("description", None)  # of the class, for who reads the code
        if kinds := whole.get("anyOf"):
            tabs = [one_of([handler.resolve_ref_schema(kind) for kind in kinds])]
        else:
            tabs = [whole | {"title": "Set here"}]
        if self.presets:
            tabs = [{"title": "Preset", "type": "string", "enum": preset_names(self.presets)}, *tabs]
        if self.empty:
            tabs = [{"title": self.empty, "type": "object", "properties": {}, "additionalProperties": False}, *tabs]
        return {"anyOf": tabs}


@dataclass(frozen=True)
class Named:
    """The JSON schema of an optional number, with words in place of `int` and `None` on its tabs."""

    none: str
    some: str

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Settings:
        some, none = handler(schema)["anyOf"]
        return {"anyOf": [none | {"title": self.none}, some | {"title": self.some}]}


def same(name: str, **changes: Any) -> Any:
    """Repeat the field of `Config`, with its bounds and its description."""
    field = Config.model_fields[name]
    return Field(description=field.description, **changes) if changes else field


class Answers(Section):
    """What the forms share; each has all of `SCALARS` and sections, in an order of its own. A section that is not set
    is empty, and one that has presets may be a preset's name."""

    @model_validator(mode="before")
    @classmethod
    def take_settings(cls, given: Any) -> Any:
        """Accept a form with every section set, too: all settings are a valid answer."""
        if not isinstance(given, Config):
            return given
        return {name: value for name, value in given.model_dump(mode="json").items() if name in cls.model_fields}

    def asked(self) -> Asked:
        """Gather what was answered; what was left open is the run's own."""
        answers = dict(self)
        sections = {name: value for name, value in self if name not in SCALARS and value != {}}
        presets = {
            folder: sections.pop(section) if isinstance(sections[section], str) else ""
            for section, folder in PRESETS.items()
            if section in sections
        }
        if answers["machine"] != HERE:
            presets["machines"] = answers["machine"]
        scalars = {name: answers[name] for name in SCALARS if name != "machine" and answers.get(name) is not None}
        return Asked(presets, sections | scalars, of_page=True)


class Form(Answers):
    """An iteration, or several: what most people choose comes first, what belongs to machines last. What is left folded
    is as the run has it; a new run has the presets paper, alfworld and latent."""

    run: str = same("run")
    method: Annotated[str | Settings, Tabs(AnyMethod, "methods", AS_THE_RUN)] = same("method", default={})
    environment: Annotated[str | Settings, Tabs(AnyEnvironment, "environments", AS_THE_RUN)] = same(
        "environment", default={}
    )
    policy: Annotated[str | Settings, Tabs(PolicySettings, "policies", AS_THE_RUN)] = same("policy", default={})
    rollout: Annotated[Settings, Tabs(RolloutSettings, empty=AS_THE_RUN)] = same("rollout", default={})
    machine: str = Field(
        HERE,
        description="The machine that the run is laid out for: as it was so far, a new run for this one, or that of a "
        "preset.",
        json_schema_extra={"enum": [HERE, *preset_names("machines")]},
    )
    iteration: Annotated[int | None, Named("The next one", "This one"), Field(ge=-1, le=99_999)] = same(
        "iteration", default=None
    )
    branch: str = same("branch")
    change: bool = same("change")
    seed: Annotated[int | None, Named("The run's own", "This one"), Field(ge=0)] = same("seed", default=None)
    training: Annotated[Settings, Tabs(TrainingSettings, empty=AS_THE_RUN)] = same("training", default={})
    evaluation: Annotated[Settings, Tabs(EvaluationSettings, empty=AS_THE_RUN)] = same("evaluation", default={})
    engine: Annotated[Settings, Tabs(AnyEngine, empty=AS_THE_RUN)] = same("engine", default={})
    placement: Annotated[Settings, Tabs(PlacementSettings, empty=AS_THE_RUN)] = same("placement", default={})
    tracking: Annotated[Settings, Tabs(TrackingSettings, empty=AS_THE_RUN)] = same("tracking", default={})
    store: Annotated[Settings, Tabs(StoreSettings, empty=AS_THE_RUN)] = same("store", default={})


Schema = dict[str, Any]
SAID = ("default", "description", "title")  # what is written anew for the setting of several kinds


def one_of(members: Sequence[Schema]) -> Schema:
    """Join the schemas of the kinds. Only what is filled in belongs to the answer: no setting but the kind has a
    default, because a form sends each default as if it had been chosen."""
    kinds = [member["properties"]["kind"]["const"] for member in members]
    having: dict[str, dict[str, Schema]] = {}
    for kind, member in zip(kinds, members, strict=True):
        for name, field in member["properties"].items():
            having.setdefault(name, {})[kind] = field
    title = having.pop("kind")[kinds[0]]["title"]
    choice = {"title": title, "type": "string", "enum": kinds, "default": kinds[0], "description": "Which one it is."}
    settings = {name: join_schemas(fields, len(kinds)) for name, fields in having.items()}
    return {
        "title": "Set here",
        "type": "object",
        "properties": {"kind": choice, **settings},
        "additionalProperties": False,
    }


def join_schemas(fields: dict[str, Schema], kinds: int) -> Schema:
    """Join a setting's schemas by kind: the values that any kind takes, with a description that tells kinds apart."""
    first, *others = fields.values()
    common = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
    if all("enum" in field for field in fields.values()):
        common["enum"] = list(dict.fromkeys(value for field in fields.values() for value in field["enum"]))
    own = {key: value for key, value in common.items() if key not in SAID}
    only = "" if len(fields) == kinds else f"Only {', '.join(fields)}. "
    texts = said_by({kind: field.get("description", "") for kind, field in fields.items()})
    defaults = said_by({kind: default_in_words(field.get("default")) for kind, field in fields.items()}, "; ")
    return own | {"title": first["title"], "description": f"{only}{texts} Default: {defaults}."}


def said_by(texts: dict[str, str], between: str = " ") -> str:
    """Say what most kinds say, then each other text with the kinds that say it."""
    ((usual, _), *rarer) = Counter(texts.values()).most_common()
    others = (f"{', '.join(kind for kind in texts if texts[kind] == text)}: {text}" for text, _ in rarer)
    return between.join([usual, *others])


def default_in_words(default: Any) -> str:
    """Write a default as a person would type it."""
    words = {None: "none", True: "on", False: "off", "": "empty"}
    if isinstance(default, bool | str | None) and default in words:
        return words[default]
    return "empty" if default in ([], {}, ()) else str(default)
