"""The one model that a run is started with."""

from __future__ import annotations

from pydantic import Field

from r3l.config.engines import AnyEngine, TransformersLocalSettings
from r3l.config.environments import AlfworldSettings, AnyEnvironment
from r3l.config.methods import AnyMethod, R3LSettings
from r3l.config.placement import PlacementSettings
from r3l.config.section import Section, identity_of
from r3l.config.sections import EvaluationSettings, PolicySettings, RolloutSettings, StoreSettings, TrainingSettings
from r3l.config.tracking import TrackingSettings


class Config(Section):
    run: str = Field(
        "demo",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="name of the run: letters, digits, . _ -",
        json_schema_extra=identity_of(),
    )
    iteration: int | None = Field(
        None,
        ge=-1,
        description="empty: the run's next one, as found in the store (evaluation: -1 is the start)",
        json_schema_extra=identity_of(),
    )
    branch: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="empty: the run itself; else a branch of it",
        json_schema_extra=identity_of(),
    )
    seed: int = Field(0, ge=0, description="seed of everything drawn, 0 or more")
    method: AnyMethod = Field(
        default_factory=R3LSettings, description="what is sampled, how it is credited, which loss"
    )
    environment: AnyEnvironment = Field(
        default_factory=AlfworldSettings, description="the world that the tasks come from"
    )
    policy: PolicySettings = Field(default_factory=PolicySettings, description="the model that is trained")
    engine: AnyEngine = Field(default_factory=TransformersLocalSettings, description="what samples from the policy")
    rollout: RolloutSettings = Field(default_factory=RolloutSettings, description="how much is sampled, and how")
    training: TrainingSettings = Field(default_factory=TrainingSettings, description="the update job")
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings, description="test episodes")
    placement: PlacementSettings = Field(default_factory=PlacementSettings, description="which hosts do the work")
    tracking: TrackingSettings = Field(
        default_factory=TrackingSettings, description="where the figures go beside the store"
    )
    store: StoreSettings = Field(default_factory=StoreSettings, description="where the tables are kept")

    def kept_at(self, root: str) -> Config:
        """The same, with the store at `root`: for a run that is played elsewhere."""
        return self.model_copy(update={"store": StoreSettings(root=root)})
