"""What the views need about stages: a row per manifest, and the files of each table as each line sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, NamedTuple

import pyarrow as pa

from r3l.stages import STAGES
from r3l.store import manifest as manifests
from r3l.store.layout import iteration_folder
from r3l.store.manifest import Manifest

STAGES_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("branch", pa.string()),
        ("iteration", pa.int32()),
        ("stage", pa.string()),
        ("shard", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
        ("fingerprint", pa.string()),
        ("digest", pa.string()),
        ("schema_version", pa.int32()),
        ("code_version", pa.string()),
        ("policy", pa.string()),
        ("seed", pa.int64()),
        ("settings", pa.string()),
        ("metrics", pa.string()),
        ("parents", pa.list_(pa.string())),
        ("pruned", pa.list_(pa.string())),
        ("committed_at", pa.string()),
        ("machine", pa.string()),
    ]
)

# Of these, what the views read. The others are most of the bytes: settings, figures and machine of each stage.
NARROW = ("run", "branch", "iteration", "stage", "seconds", "committed_at")

BUNDLED = "column"
ITERATION = re.compile(r"/iteration=(-?[0-9]+)/")


class Part(NamedTuple):
    """One file of one table. `seen_by`: the branch that took it over; None: the line that it lies in. `shard` says
    where a row's shard stands: in the file's `path`, nowhere (`none`), or in a `column`, beside run and branch, of a
    bundle of files. `kind`: of all its trajectories, where the file says that they are of one; else empty."""

    seen_by: str | None
    shard: str
    version: int
    stage: str
    table: str
    path: str
    kind: str = ""
    bytes: int = 0

    @property
    def line(self) -> tuple[str, str]:
        """Name the run, and the branch that sees the file."""
        run, below = self.path.split("/", 2)[:2]
        own = below.removeprefix("branch=") if below.startswith("branch=") else ""
        return run, own if self.seen_by is None else self.seen_by

    @property
    def iteration(self) -> int:
        match = ITERATION.search(self.path)
        assert match, f"{self.path} lies in no iteration"
        return int(match[1])


@dataclass(frozen=True, slots=True)
class Contents:
    """Of any number of stages: rows of `stages` as lists of columns, those that branches took over, and their files."""

    stages: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in STAGES_SCHEMA.names})
    seen: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in STAGES_SCHEMA.names})
    own: list[Part] = field(default_factory=list)
    taken_over: list[Part] = field(default_factory=list)
    views: dict[str, str] = field(default_factory=dict)  # of an export: where the rows of a view lie

    def add(self, other: Contents) -> None:
        """Add the contents of another run."""
        for mine, theirs in ((self.stages, other.stages), (self.seen, other.seen)):
            for name, column in mine.items():
                column.extend(theirs.get(name, ()))
        self.own.extend(other.own)
        self.taken_over.extend(other.taken_over)
        self.views.update(other.views)

    def of(self, stages: Collection[str]) -> Contents:
        """Leave out the files of all other stages."""
        own, taken_over = ([part for part in parts if part.stage in stages] for parts in (self.own, self.taken_over))
        return replace(self, own=own, taken_over=taken_over)

    def at(self, iteration: int) -> Contents:
        """Leave out all other iterations."""
        own, taken_over = (
            [part for part in parts if part.shard == BUNDLED or part.iteration == iteration]
            for parts in (self.own, self.taken_over)
        )
        stages, seen = (
            chosen(rows, [number == iteration for number in rows["iteration"]]) for rows in (self.stages, self.seen)
        )
        return Contents(stages, seen, own, taken_over)

    def newest(self, count: int) -> Contents:
        """Leave out all but so many newest iterations of each line. Files of evaluations stay: all of them decide which
        can be compared."""
        last: dict[tuple[str, str], int] = {}
        for rows in (self.stages, self.seen):
            for run, branch, iteration in places(rows):
                last[run, branch] = max(iteration, last.get((run, branch), iteration))
        own, taken_over = (
            [part for part in parts if part.stage == "evaluations" or part.iteration > last[part.line] - count]
            for parts in (self.own, self.taken_over)
        )
        stages, seen = (
            chosen(rows, [number > last[run, branch] - count for run, branch, number in places(rows)])
            for rows in (self.stages, self.seen)
        )
        return Contents(stages, seen, own, taken_over)

    def narrow(self) -> Contents:
        """Leave out the columns of `stages` that no view reads."""
        stages, seen = ({name: rows[name] for name in NARROW} for rows in (self.stages, self.seen))
        return replace(self, stages=stages, seen=seen)


def chosen(rows: dict[str, list[Any]], which: list[bool]) -> dict[str, list[Any]]:
    return {name: list(compress(column, which)) for name, column in rows.items()}


def places(rows: dict[str, list[Any]]) -> Iterator[tuple[str, str, int]]:
    """Yield run, branch and iteration of each row."""
    return zip(rows["run"], rows["branch"], rows["iteration"], strict=True)


def contents_of(stages: Iterable[Manifest], beside: Collection[str] = ()) -> Contents:
    """Return the contents of these manifests. Those in the folders `beside` are there for what branches took over."""
    everything = sorted(stages, key=place)
    seen = list_inherited(everything)
    owned = [one for one in everything if iteration_folder(one["run"], one["branch"], one["iteration"]) not in beside]
    own = [part for manifest in owned for part in parts_of(manifest)]
    taken_over = [part for branch, manifest in seen for part in parts_of(manifest, branch)]
    others = [stage_row(manifest) | {"branch": branch} for branch, manifest in seen]
    return Contents(columns([stage_row(manifest) for manifest in owned]), columns(others), own, taken_over)


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in STAGES_SCHEMA.names}


def place(manifest: Manifest) -> tuple[str, str, int, int, int]:
    """Make the key that sorts manifests in the order of the pipeline."""
    shard = -1 if manifest["shard"] is None else manifest["shard"]
    return manifest["run"], manifest["branch"], manifest["iteration"], ORDER[manifest["stage"]], shard


def stage_row(manifest: Manifest) -> dict[str, Any]:
    """Write a manifest as a row of the view `stages`."""
    row = {name: manifest.get(name) for name in STAGES_SCHEMA.names}
    return row | {
        "rows": sum(part["rows"] for part in manifest["parts"]),
        "bytes": sum(part["bytes"] for part in manifest["parts"]),
        "seconds": manifest["metrics"].get("seconds"),
        "settings": json.dumps(manifest["settings"], sort_keys=True),
        "metrics": json.dumps(manifest["metrics"], sort_keys=True),
        "machine": json.dumps(manifest.get("machine", {}), sort_keys=True),
        "parents": [parent["fingerprint"] for parent in manifest["parents"]],
        "pruned": [f"{part['table']}.{column}" for part in manifest["parts"] for column in part.get("dropped", ())],
    }


def parts_of(manifest: Manifest, seen_by: str | None = None) -> Iterator[Part]:
    """Yield the files of a stage that have rows."""
    folder = manifests.reference(manifest).key.folder
    shard = "none" if manifest["shard"] is None else "path"
    for part in manifest["parts"]:
        if part["rows"]:
            where = f"{folder}/{part['file']}"
            yield Part(
                seen_by, shard, manifest["schema_version"], manifest["stage"], part["table"], where, "", part["bytes"]
            )


ORDER = {stage: place for place, stage in enumerate(STAGES)}


def list_inherited(manifests: Sequence[Manifest]) -> list[tuple[str, Manifest]]:
    """List (branch, manifest of another line that it sees). In an iteration that a branch takes up, it sees of its
    origin the stages before its own first one; an origin may itself be a branch."""
    origins = find_origins(manifests)
    own: dict[tuple[str, str, int], list[Manifest]] = {}
    for manifest in manifests:
        own.setdefault((manifest["run"], manifest["branch"], manifest["iteration"]), []).append(manifest)

    def seen(run: str, branch: str, iteration: int) -> list[Manifest]:
        mine = own.get((run, branch, iteration), [])
        first = min((ORDER[manifest["stage"]] for manifest in mine), default=len(ORDER))
        above = seen(run, origins[run, branch], iteration) if branch else []
        return mine + [manifest for manifest in above if ORDER[manifest["stage"]] < first]

    return [
        (branch, manifest)
        for run, branch, iteration in own
        if branch
        for manifest in seen(run, branch, iteration)
        if manifest["branch"] != branch
    ]


def find_origins(manifests: Sequence[Manifest]) -> dict[tuple[str, str], str]:
    """Map (run, branch) to the branch that it was forked from: the one whose stages its own first stages were made
    from."""
    origins: dict[tuple[str, str], str] = {}
    for manifest in manifests:
        place = (manifest["run"], manifest["branch"])
        origins.setdefault(place, "")
        for parent in manifest["parents"]:
            if parent["branch"] != manifest["branch"] and not leads_to(
                origins, manifest["run"], parent["branch"], manifest["branch"]
            ):
                origins[place] = origins[place] or parent["branch"]
    return origins


def leads_to(origins: dict[tuple[str, str], str], run: str, branch: str, target: str) -> bool:
    """Tell whether `target` is an origin of `branch`. A cycle means damage: no fork makes one."""
    while branch:
        if branch == target:
            return True
        branch = origins.get((run, branch), "")
    return False
