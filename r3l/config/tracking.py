"""Trackers that are fed from the stored metrics; what they are not given now, `r3l track` gives them later."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.config.section import Section

Tracker = Literal["tensorboard", "mlflow", "wandb", "trackio"]


class TrackingSettings(Section):
    IDENTITY_OF = ()

    to: list[Tracker] = Field(
        default_factory=list, description="tensorboard, mlflow, wandb, trackio: fed after each iteration"
    )
    tensorboard: str = Field("", description="log folder; empty: runs")
    mlflow: str = Field("", description="tracking URI; empty: MLFLOW_TRACKING_URI, else MLflow's own default")
    wandb: str = Field("", description="project; empty: r3l")
    trackio: str = Field("", description="project; empty: r3l")
    timeout_s: float = Field(120, gt=0, description="seconds after which a tracker counts as down, above 0")
