"""The place of a stage, and the small reference that tasks pass to one another instead of rows."""

import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from r3l.errors import StoreError
from r3l.stages import STAGES

MANIFEST = "stage.json"
SETTINGS = "config.json"  # of an iteration: what a replay starts from
STAGING = ".staging"
EXPORT_INDEX = "r3l/index.json"  # of a run as a data set: what is in it
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
BRANCH = re.compile(rf"branch={NAME.pattern}")  # the name of its folder
ITERATION = re.compile(r"iteration=(-?[0-9]+)")
MANIFEST_PATH = re.compile(
    rf"(?P<run>{NAME.pattern})/(?:branch=(?P<branch>{NAME.pattern})/)?iteration=(?P<iteration>-?[0-9]+)/"
    r"(?P<stage>[a-z_]+)/(?:shard=(?P<shard>[0-9]+)/)?stage\.json"
)


@dataclass(frozen=True, slots=True)
class StageKey:
    """The place of one stage (of one shard of tasks, where the stage is sharded). Branch "" is the run itself."""

    run: str
    branch: str
    iteration: int
    stage: str
    shard: int | None = None

    def __post_init__(self) -> None:
        check_name("run", self.run)
        if self.branch:
            check_name("branch", self.branch)
        if self.stage not in STAGES:
            raise StoreError(f"unknown stage {self.stage!r}; the stages are {', '.join(STAGES)}")

    @property
    def folder(self) -> str:
        """Name the folder relative to the store's root, e.g. ``demo/iteration=00007/base/shard=003``."""
        shard = "" if self.shard is None else f"/shard={self.shard:03d}"
        return f"{iteration_folder(self.run, self.branch, self.iteration)}/{self.stage}{shard}"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{MANIFEST}"

    def __str__(self) -> str:
        return self.folder


class StageRef(BaseModel):
    """A committed stage: its key, what it was made from (`fingerprint`) and what it holds (`digest`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    branch: str = ""
    iteration: int
    stage: str
    shard: int | None = None
    fingerprint: str
    digest: str

    @property
    def key(self) -> StageKey:
        return StageKey(self.run, self.branch, self.iteration, self.stage, self.shard)


def check_name(what: str, name: str) -> None:
    """Raise StoreError for a name that could leave its folder or read as a part of the layout."""
    if not NAME.fullmatch(name):
        raise StoreError(
            f"{what} name {name!r:.120}: letters, digits, '.', '_' and '-' only, at most 100, beginning with a "
            "letter or digit"
        )


def line_folder(run: str, branch: str = "") -> str:
    """Name the folder of a run, or of one branch of it."""
    check_name("run", run)
    if branch:
        check_name("branch", branch)
    return f"{run}/branch={branch}" if branch else run


def iteration_folder(run: str, branch: str, iteration: int) -> str:
    return f"{line_folder(run, branch)}/iteration={iteration:05d}"


def key_of(manifest_path: str) -> StageKey | None:
    """Parse the key that a manifest's path stands for; None for any other path, whatever names it has."""
    match = MANIFEST_PATH.fullmatch(manifest_path)
    if not match or match["stage"] not in STAGES:
        return None
    shard = None if match["shard"] is None else int(match["shard"])
    key = StageKey(match["run"], match["branch"] or "", int(match["iteration"]), match["stage"], shard)
    return key if key.manifest == manifest_path else None  # iteration=7 is not the place of iteration=00007
