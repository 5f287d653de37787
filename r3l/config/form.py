"""What the form of a flow asks for: few choices, each a preset's name or, in another tab, all settings of a section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, TypeAdapter, model_validator
from pydantic_core import CoreSchema, core_schema

from r3l.config.choice import one_of
from r3l.config.compose import POLICY, load_preset, merge, preset_names, resolve_conditions, validated
from r3l.config.engines import AnyEngine
from r3l.config.environments import AnyEnvironment
from r3l.config.methods import AnyMethod
from r3l.config.model import Config
from r3l.config.placement import PlacementSettings
from r3l.config.section import Section
from r3l.config.sections import EvaluationSettings, PolicySettings, RolloutSettings, StoreSettings, TrainingSettings
from r3l.config.tracking import TrackingSettings

Settings = dict[str, Any]
HERE = "this machine"
PRESETS = {"policy": "policies", "environment": "environments", "method": "methods"}  # in the order of `compose`
KINDED = {"method", "environment", "engine"}  # sections of several kinds
AS_BELOW = "As the presets set it"
SCALARS = ("run", "iteration", "branch", "seed", "machine")


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
        found = handler(schema)
        found.pop("description", None)  # of the class, for who reads the code
        if kinds := found.get("anyOf"):
            tabs = [one_of([handler.resolve_ref_schema(kind) for kind in kinds])]
        else:
            tabs = [found | {"title": "Set here"}]
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
    """Return the field of `Config`, with the same bounds and description."""
    field = Config.model_fields[name]
    return Field(description=field.description, **changes) if changes else field


class Answers(Section):
    """What the forms share; each has all of `SCALARS` and sections, in an order of its own. A section that is not set
    is empty, and one that has presets may be a preset's name."""

    @model_validator(mode="before")
    @classmethod
    def take_settings(cls, given: Any) -> Any:
        """Accept a form with every section set, too: all settings are a valid answer."""
        return given.model_dump(mode="json") if isinstance(given, Config) else given

    @property
    def goes_by_the_run(self) -> bool:
        """Whether a section is left to the settings of the run: none is a preset's name, and not all are set."""
        values = [value for name, value in self if name not in SCALARS]
        return {} in values and not any(isinstance(value, str) for value in values)

    def resolved(self, below: Settings | None = None) -> Config:
        """Return the settings that are asked for: presets on top of `below`, and sections that are set on top of them.

        Raises:
            ConfigError: an unknown preset or setting, a value out of bounds, or values that contradict each other.
        """
        given = dict(self)
        sections = {name: value for name, value in self if name not in SCALARS and value != {}}
        default = Config()  # a section that is set without its kind has the first one that the form shows
        first = {name: {"kind": getattr(default, name).kind} for name in KINDED & sections.keys()}
        settings: Settings = merge(first, below or {})
        for section, folder in PRESETS.items():
            if isinstance(sections.get(section), str):
                settings = merge(settings, load_preset(folder, sections.pop(section), files=False))
        if given["machine"] != HERE:
            layout = load_preset("machines", given["machine"], files=False)
            settings = merge(settings, {key: value for key, value in layout.items() if key != "machine"})
        kinds = {name: {"kind": value["kind"]} for name, value in sections.items() if "kind" in value}
        settings = merge(resolve_conditions(merge(settings, kinds)), sections)  # a preset's `when` goes by the kind
        settings |= {name: given[name] for name in ("run", "branch", "iteration")}
        settings |= {} if given["seed"] is None else {"seed": given["seed"]}
        return validated(settings)


class Form(Answers):
    """An iteration, or several: what most people choose comes first, what belongs to machines last."""

    run: str = same("run")
    method: Annotated[str | Settings, Tabs(AnyMethod, "methods")] = same("method", default="paper")
    environment: Annotated[str | Settings, Tabs(AnyEnvironment, "environments")] = same(
        "environment", default="alfworld"
    )
    policy: Annotated[str | Settings, Tabs(PolicySettings, "policies")] = same("policy", default=POLICY)
    rollout: Annotated[Settings, Tabs(RolloutSettings, empty=AS_BELOW)] = same("rollout", default={})
    machine: str = Field(
        HERE,
        description="The machine that the run is laid out for: this one, or that of a preset.",
        json_schema_extra={"enum": [HERE, *preset_names("machines")]},
    )
    iteration: Annotated[int | None, Named("The next one", "This one"), Field(ge=-1, le=99_999)] = same(
        "iteration", default=None
    )
    branch: str = same("branch")
    seed: int = same("seed")
    training: Annotated[Settings, Tabs(TrainingSettings, empty=AS_BELOW)] = same("training", default={})
    evaluation: Annotated[Settings, Tabs(EvaluationSettings, empty=AS_BELOW)] = same("evaluation", default={})
    engine: Annotated[Settings, Tabs(AnyEngine, empty=AS_BELOW)] = same("engine", default={})
    placement: Annotated[Settings, Tabs(PlacementSettings, empty=AS_BELOW)] = same("placement", default={})
    tracking: Annotated[Settings, Tabs(TrackingSettings, empty=AS_BELOW)] = same("tracking", default={})
    store: Annotated[Settings, Tabs(StoreSettings, empty=AS_BELOW)] = same("store", default={})
