"""Make an environment's data ready: find or download, verify counts and hashes, write the task manifest.

    <data_root>/<kind>/prepared-<variant>/manifest.json      what was verified: files, splits, counts, hashes
    <data_root>/<kind>/prepared-<variant>/<split>.jsonl      the tasks of a split, one a line

Every path in a manifest is relative to the data root, so that the folder can be moved as a whole.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from r3l import plugins
from r3l.config.environments import AnyEnvironment, EnvironmentSettings
from r3l.environments.base import DataPlan, OnProgress, Preparable
from r3l.environments.kinds import ENVIRONMENTS, make_world, world_class
from r3l.environments.prepare.files import Fingerprint, fingerprint, silent
from r3l.errors import ConfigError, WorldError
from r3l.records import Task
from r3l.store.files.local import replace_text
from r3l.system.home import locate

MANIFEST, VERSION = "manifest.json", 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is ready. `splits`: tasks of each; `notes`: what a person may want to know, one line each."""

    kind: str
    manifest: Path
    splits: dict[str, int]
    notes: tuple[str, ...]


def prepare(
    kind: str,
    data_root: Path | str,
    settings: Mapping[str, Any] | None = None,
    *,
    splits: Sequence[str] = (),
    download: bool = True,
    progress: OnProgress = silent,
) -> Prepared:
    """Prepare everything that `kind` needs to run under `data_root`, with these settings of the environment; only
    `splits`, if some are named. `progress` is told (what, done, in all). With `download` off nothing is fetched.
    Running it again verifies what is there against the manifest.

    Raises:
        ConfigError: an unknown kind or setting.
        WorldError: something is missing and could not be had (the message says what, from where and where to put it), a
            count is not what it should be, or a file has changed since it was prepared.
    """
    environment = settings_of(kind, data_root, settings or {})
    root, world = locate(data_root), world_class(kind)
    if not isinstance(world, Preparable):
        raise ConfigError(f"nothing to prepare for {kind!r}: its world has no `prepare`")
    plan = narrow_plan(kind, splits, world.prepare(environment, root, download, progress, splits))
    manifest = root / kind / f"prepared-{plan.variant}" / MANIFEST
    files = [fingerprint(path, root, progress) for path in plan.files]
    refuse_changes(manifest, files)
    entries = {split: write_split(environment, plan, split, manifest.parent, progress) for split in plan.splits}
    content = {
        "version": VERSION,
        "kind": kind,
        "settings": environment.model_dump(mode="json", exclude={"data_root"}),
        "files": [asdict(file) for file in files],
        "splits": entries,
        "notes": list(plan.notes),
    }
    replace_text(manifest, json.dumps(content, indent=1) + "\n")
    return Prepared(kind, manifest, {split: entry["tasks"] for split, entry in entries.items()}, plan.notes)


def narrow_plan(kind: str, splits: Sequence[str], plan: DataPlan) -> DataPlan:
    """Keep these splits of a plan alone, under a name of its own. Raise `ConfigError` for one that there is not."""
    if unknown := [split for split in splits if split not in plan.splits]:
        raise ConfigError(f"{kind} has no split {unknown[0]!r} to prepare: expected some of {', '.join(plan.splits)}")
    return replace(plan, variant="-".join([plan.variant, *splits]), splits=tuple(splits)) if splits else plan


def settings_of(kind: str, data_root: Path | str, settings: Mapping[str, Any]) -> EnvironmentSettings:
    if kind not in ENVIRONMENTS and not plugins.is_dotted(kind) and kind not in plugins.installed("environment"):
        kinds = [*ENVIRONMENTS, *plugins.installed("environment")]
        raise ConfigError(f"nothing to prepare for {kind!r}: expected one of {', '.join(kinds)}")
    adapter: TypeAdapter[EnvironmentSettings] = TypeAdapter(AnyEnvironment)
    try:
        environment = adapter.validate_python({**settings, "kind": kind, "data_root": str(data_root)})
    except ValidationError as error:
        raise ConfigError(f"settings of {kind}: {error}") from error
    if unknown := sorted(set(settings) - set(type(environment).model_fields)):
        raise ConfigError(
            f"settings of {kind}: {unknown[0]!r} is unknown; it has {', '.join(sorted(type(environment).model_fields))}"
        )
    return environment


def refuse_changes(manifest: Path, files: Sequence[Fingerprint]) -> None:
    """Raise `WorldError` if a file that was prepared before now has another content."""
    if not manifest.is_file():
        return
    hash_of = {entry["path"]: entry["sha256"] for entry in json.loads(manifest.read_text())["files"]}
    changes = [
        f"{file.path} (sha256 {file.sha256[:12]}, expected {hash_of[file.path][:12]})"
        for file in files
        if hash_of.get(file.path, file.sha256) != file.sha256
    ]
    if changes:
        raise WorldError(
            f"changed since it was prepared: {'; '.join(changes)}. Put back what was there, or delete {manifest} "
            "to take it as it is now"
        )


def write_split(
    settings: EnvironmentSettings, plan: DataPlan, split: str, folder: Path, progress: OnProgress
) -> dict[str, Any]:
    """Write the split's tasks as lines, after their number was verified; the result is its entry of the manifest."""
    tasks = make_world(settings).tasks(split)
    task_count = plan.expected.get(split)
    if task_count is not None and len(tasks) != task_count:
        raise WorldError(
            f"{settings.kind} split {split}: got {len(tasks)} tasks, expected {task_count}; "
            f"{plan.remedy or 'the data are incomplete: download them again'}"
        )
    progress(f"tasks of {split}", len(tasks), len(tasks))
    path = folder / f"{split}.jsonl"
    replace_text(path, "".join(json.dumps(listing_of(task)) + "\n" for task in tasks))
    root = folder.parent.parent
    return {
        "tasks": len(tasks),
        "types": dict(sorted(Counter(task.task_type for task in tasks).items())),
        **asdict(fingerprint(path, root, silent)),
    }


def listing_of(task: Task) -> dict[str, Any]:
    """Convert a task without its place in a batch, which it has none yet."""
    return {name: value for name, value in asdict(task).items() if name not in ("iteration", "task")}
