"""Where shards and the update run. Placement changes no row, so it belongs to no stage's identity."""

from typing import Literal

from pydantic import Field

from r3l.config.numbers import number, within
from r3l.config.section import WEEK_S, Section


class PlacementSettings(Section):
    IDENTITY_OF = ()

    shards: Literal["here", "workers", "ray"] = Field(
        "here",
        description=(
            "Where shards of tasks are played. here: in threads of the flow; workers: in one flow run of "
            "shard_deployment per shard; ray: in tasks of a Ray cluster."
        ),
    )
    shard_deployment: str = Field(
        "r3l-shard/shard", description="Deployment of the flow r3l-shard. All hosts need a store that they share."
    )
    ray_address: str = Field(
        "",
        description=(
            "Address of the Ray cluster: ray://HOST:10001, or auto. If empty, a Ray on this machine is started "
            "for the run."
        ),
    )
    update_deployment: str = Field(
        "",
        description=(
            "Deployment that runs the update, such as r3l-update/update. If empty, the update is a process beside "
            "the flow."
        ),
    )
    attempts: int = number(
        3,
        within(1, 100),
        "Number of times that a job is started if its host is lost, {}. A job that fails is not started again.",
    )
    silent_s: float = number(
        120, within(1, WEEK_S), "Seconds without a heartbeat after which the host of a remote job counts as lost, {}."
    )
    heartbeat_s: float = number(10, within(0.1, 3600), "Seconds between two heartbeats of a remote job, {}.")
