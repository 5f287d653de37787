"""Where shards and the update run. It changes no row, so it is part of no stage's identity."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.config.section import Section


class PlacementSettings(Section):
    IDENTITY_OF = ()

    shards: Literal["here", "workers", "ray"] = Field(
        "here",
        description="here: threads of the flow; workers: a flow run of shard_deployment for each; ray: tasks on a Ray cluster",
    )
    shard_deployment: str = Field(
        "r3l-shard/shard", description="deployment of the flow r3l-shard, with a store that all hosts see"
    )
    ray_address: str = Field(
        "", description="ray://HOST:10001, or auto; empty: a Ray of this machine, started for the run"
    )
    update_deployment: str = Field(
        "", description="empty: a process beside the flow; else a deployment, e.g. r3l-update/update"
    )
    attempts: int = Field(
        3, ge=1, le=100, description="tries of a job whose host is lost, 1 to 100; a job that fails is not tried again"
    )
    silent_s: float = Field(
        120, ge=1, description="seconds without a heartbeat before the host of a job elsewhere counts as lost"
    )
    heartbeat_s: float = Field(10, ge=0.1, description="seconds between two heartbeats of a job elsewhere")
