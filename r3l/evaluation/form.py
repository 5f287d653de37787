"""What the form of an evaluation asks for: whose policy, on which benchmark, on how many tasks."""

from typing import Annotated

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from r3l.config.compose import Asked, preset_names
from r3l.config.engines import AnyEngine
from r3l.config.environments import AnyEnvironment
from r3l.config.form import HERE, Answers, Named, Settings, Tabs, same
from r3l.config.sections import EvaluationSettings, PolicySettings, StoreSettings, TrackingSettings
from r3l.evaluation.benchmarks import BENCHMARKS

OWN = "the run's own"
TRAINED = "As the run was trained"


class Posing(EvaluationSettings):
    """The benchmark as a choice, and nothing that only training asks for."""

    benchmark: str = Field(
        OWN,
        description="The benchmark that is played: the run's own environment, on the split below, or a named one.",
        json_schema_extra={"enum": [OWN, *BENCHMARKS]},
    )
    every: SkipJsonSchema[int] = 0


class EvaluationForm(Answers):
    """Test episodes. What is left folded is as the run was trained; for a run that does not exist, as presets have
    it."""

    run: str = same("run")
    iteration: Annotated[int | None, Named("The newest", "This one"), Field(ge=-1)] = same("iteration", default=None)
    evaluation: Annotated[Settings, Tabs(Posing)] = same("evaluation", default={})
    policy: Annotated[str | Settings, Tabs(PolicySettings, "policies", TRAINED)] = same("policy", default={})
    environment: Annotated[str | Settings, Tabs(AnyEnvironment, "environments", TRAINED)] = same(
        "environment", default={}
    )
    engine: Annotated[Settings, Tabs(AnyEngine, empty=TRAINED)] = same("engine", default={})
    machine: str = Field(
        HERE,
        description="The machine that the engine is laid out for: this one, or that of a preset.",
        json_schema_extra={"enum": [HERE, *preset_names("machines")]},
    )
    branch: str = same("branch")
    seed: Annotated[int | None, Named("The run's own", "This one"), Field(ge=0)] = Field(
        None, description="Seed of the sample and of the episodes."
    )
    store: Annotated[Settings, Tabs(StoreSettings, empty="As the server has it")] = same("store", default={})
    tracking: Annotated[Settings, Tabs(TrackingSettings, empty=TRAINED)] = same("tracking", default={})
    # Not shown in the form: for callers who hand over all settings of a run.
    placement: SkipJsonSchema[Settings] = Field({})
    method: SkipJsonSchema[str | Settings] = Field({})
    rollout: SkipJsonSchema[Settings] = Field({})
    training: SkipJsonSchema[Settings] = Field({})

    def asked(self) -> Asked:
        form = self
        if self.evaluation.get("benchmark") == OWN:
            form = self.model_copy(update={"evaluation": self.evaluation | {"benchmark": ""}})
        return Answers.asked(form)
