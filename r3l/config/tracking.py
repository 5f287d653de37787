"""Experiment trackers. They receive the stored metrics, during a run or later with `r3l track`."""

from typing import Literal

from pydantic import Field

from r3l.config.numbers import above, number
from r3l.config.section import WEEK_S, Section

Tracker = Literal["tensorboard", "mlflow", "wandb", "trackio"]


class TrackingSettings(Section):
    IDENTITY_OF = ()

    to: list[Tracker] = Field(
        default_factory=list,
        description="Trackers that receive the metrics after each iteration: tensorboard, mlflow, wandb, trackio.",
    )
    tensorboard: str = Field("", description="Log folder of TensorBoard. If empty, runs.")
    mlflow: str = Field(
        "", description="Tracking URI of MLflow. If empty, MLFLOW_TRACKING_URI, else MLflow's own default."
    )
    wandb: str = Field("", description="Project in Weights & Biases. If empty, r3l.")
    trackio: str = Field("", description="Project in Trackio. If empty, r3l.")
    timeout_s: float = number(120, above(0, WEEK_S), "Seconds after which a tracker counts as unreachable, {}.")
