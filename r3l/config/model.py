"""The settings of a run: one model."""

from __future__ import annotations

from pydantic import Field

from r3l.config.engines import AnyEngine, TransformersLocalSettings
from r3l.config.environments import AlfworldSettings, AnyEnvironment
from r3l.config.methods import AnyMethod, R3LSettings
from r3l.config.numbers import number, within
from r3l.config.section import LARGEST, Section, identity_of
from r3l.config.sections import (
    EvaluationSettings,
    PlacementSettings,
    PolicySettings,
    RolloutSettings,
    StoreSettings,
    TrackingSettings,
)
from r3l.config.training import TrainingSettings


class Config(Section):
    run: str = Field(
        "demo",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Name of the run: a letter or digit, then letters, digits, dots, hyphens and underscores.",
        json_schema_extra=identity_of(),
    )
    iteration: int | None = number(
        None,
        within(-1, 99_999),
        "Number of the iteration, up to 99999. If empty, the next one of the run as the store has it. For an "
        "evaluation, -1 is the starting policy.",
        identity_of(),
    )
    branch: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="Branch of the run that the iteration belongs to. If empty, the run itself.",
        json_schema_extra=identity_of(),
    )
    change: bool = Field(
        False,
        description=(
            "Whether a run that is there may go on with another policy, environment or method than before. If not, "
            "such a change is refused."
        ),
        json_schema_extra=identity_of(),
    )
    seed: int = number(0, within(0, LARGEST), "Seed of all random numbers of the run, {}.")
    method: AnyMethod = Field(
        default_factory=R3LSettings,
        description="The method: what it samples, how it assigns credit and which loss it uses.",
    )
    environment: AnyEnvironment = Field(
        default_factory=AlfworldSettings, description="The environment that the tasks come from."
    )
    policy: PolicySettings = Field(default_factory=PolicySettings, description="The language model that is trained.")
    engine: AnyEngine = Field(
        default_factory=TransformersLocalSettings, description="The inference engine that samples from the policy."
    )
    rollout: RolloutSettings = Field(
        default_factory=RolloutSettings, description="How many tasks and trajectories an iteration samples, and how."
    )
    training: TrainingSettings = Field(
        default_factory=TrainingSettings,
        description="The update job: optimiser, memory, devices and the replay buffer.",
    )
    evaluation: EvaluationSettings = Field(
        default_factory=EvaluationSettings, description="The held-out episodes that measure a policy."
    )
    placement: PlacementSettings = Field(default_factory=PlacementSettings, description="Which hosts sample and train.")
    tracking: TrackingSettings = Field(
        default_factory=TrackingSettings,
        description="Experiment trackers that receive the metrics in addition to the store.",
    )
    store: StoreSettings = Field(default_factory=StoreSettings, description="Where the tables are kept.")

    def kept_at(self, root: str) -> Config:
        """Copy the settings, with the store at `root`: for a run that is played on another host."""
        return self.model_copy(update={"store": StoreSettings(root=root)})
