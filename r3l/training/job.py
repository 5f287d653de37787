"""The description of one update job: a JSON file, written by the caller of `python -m r3l.training --job job.json`."""

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pydantic import Field, ValidationError

from r3l.config.section import Section
from r3l.config.sections import PolicySettings
from r3l.config.training import TrainingSettings
from r3l.errors import TrainingError


class PolicyPath(Section):
    """A snapshot on disk: a transformers folder, or a peft adapter on top of `base_path`."""

    path: str
    digest: str
    base_path: str | None = None


class Job(Section):
    """One update, of one or several optimiser steps. `out` is a staging folder: the caller moves it where it belongs
    once the job has ended."""

    rows: list[str] = Field(description="parquet files of training rows, in a fixed order")
    turns: list[str] = Field(
        default_factory=list, description="parquet files of the bases' turns, which the drift is measured on"
    )
    groups: int = Field(ge=0, description="groups of the batch: the denominator of `groups` reductions")
    policy: PolicyPath = Field(description="the policy that is trained")
    policies: dict[str, str] = Field(
        default_factory=dict, description="digest to folder, of behaviour policies other than `policy`"
    )
    reference: str | None = Field(
        None,
        description="folder of the starting policy: the reference where a row has a KL coefficient, "
        "and what `kl_start` is measured against",
    )
    policy_settings: PolicySettings = Field(default_factory=PolicySettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    out: str = Field(description="folder to write: policy/, optimizer/ and update.json")
    optimiser: str | None = Field(None, description="folder of the previous optimiser state; empty: a fresh one")
    optimiser_digest: str | None = Field(None, description="what that folder must hold; empty: not checked")
    iteration: int = Field(0, ge=0)
    step: int = Field(1, ge=1, description="number of the first optimiser step in the run, 1-based")
    seed: int = Field(0, ge=0)
    canary_ids: list[int] = Field(
        default_factory=list, description="token ids to score with the new policy; empty: of a trained row"
    )


class PolicySpec(TypedDict):
    """A `PolicyPath` as its caller writes it."""

    path: str
    digest: str
    base_path: str | None


class JobSpec(TypedDict):
    """A `Job` as its caller writes it: the files of rows and the folder are known last."""

    groups: int
    policy: PolicySpec
    policies: dict[str, str]
    reference: str
    policy_settings: dict[str, Any]
    training: dict[str, Any]
    optimiser: str | None
    optimiser_digest: str | None
    iteration: int
    step: int
    seed: int
    rows: NotRequired[list[str]]
    turns: NotRequired[list[str]]
    out: NotRequired[str]


class UpdateEvent(TypedDict):
    """What happened to a job that its figures don't say."""

    event: str
    reason: str
    detail: str


class UpdateResult(TypedDict):
    """What `update.json` holds: the figures of the last step, under the names of `OptimiserStep`, those of all `steps`,
    and these. The digests of the policy and of the optimiser's state are added by whoever runs the job."""

    policy: NotRequired[str]
    optimiser: NotRequired[str]
    step: int
    loss: float
    grad_norm: float
    seconds: float
    peak_memory_mb: float
    seconds_by_part: dict[str, float]
    canary: dict[str, Any]
    events: list[UpdateEvent]
    steps: list[dict[str, Any]]
    scores: list[str]  # files of the table training_scores


def read_job(path: str | Path) -> Job:
    """Read the job in a JSON file.

    Raises:
        TrainingError: the file is missing or is no valid job; names the fields that are wrong.
    """
    try:
        return Job.model_validate_json(Path(path).read_text())
    except OSError as error:
        raise TrainingError(f"job file {path}: {error.strerror}; expected the JSON of an update job") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise TrainingError(f"job file {path}: {wrong}") from error
