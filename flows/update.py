"""The updates stage: what the update job is told, and the row that its result becomes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows import stored
from flows.logs import log
from flows.remote_update import ask
from flows.step import counted, policy_place, take_step
from flows.workbench import Workbench
from r3l.errors import StoreError
from r3l.records import Event
from r3l.store.layout import StageRef, line_folder
from r3l.store.policy_places import fetch_policy
from r3l.store.schemas import UPDATES
from r3l.store.stage import Store


def update_tables(bench: Workbench, rows: Sequence[StageRef], groups: int, older: dict[str, str]) -> stored.Tables:
    """Run the job, put its policy where the run keeps them, and return the tables of the stage.

    Args:
        groups: groups that count in the batch's mean.
        older: digest to folder of the policies that sampled replayed rows.
    """
    config, place = bench.config, policy_place(line_folder(bench.config.run, bench.config.branch), bench.iteration)
    bench.tally.add("updates", planned=1)
    told = job(bench, groups, older)
    if config.placement.update_deployment:
        result = ask(bench, told, [path for ref in rows for path in files(bench.store, ref)])
    else:
        told["rows"] = [str(path) for ref in rows for path in local_files(bench.store, ref)]
        result = take_step(bench.store, line_folder(config.run, config.branch), bench.iteration, told, counted(bench.tally))
    bench.tally.add("updates", done=1)
    return {"updates": [_row(bench, result, f"policies/{place.rpartition('/')[2]}/policy")],
            "events": [Event(bench.iteration, "updates", result["policy"], one["event"], one["reason"], one.get("detail", ""))
                       for one in result.get("events", [])]}


def policy_is_there(bench: Workbench, ref: StageRef) -> bool:
    """Whether the policy of a stored update is still what it wrote; where it isn't, the update is taken again."""
    [row] = bench.store.read(ref, "updates", ["path", "policy"]).to_pylist()
    try:
        fetch_policy(bench.store, f"{line_folder(ref.run, ref.branch)}/{row['path']}", row["policy"])
    except StoreError as error:
        log().warning("%s", error)
        return False
    return True


def job(bench: Workbench, groups: int, older: dict[str, str]) -> dict[str, Any]:
    """The job's spec but for its rows and the folder that it writes to: everything it may know, as paths and settings."""
    config, policies = bench.config, bench.policies
    optimiser = policies.learner_folder / "optimizer" if policies.learner_folder else None
    return {
        "groups": groups,
        "policy": {"path": policies.learner.path, "digest": policies.learner.digest, "base_path": policies.learner.base_path},
        "policies": {**older, policies.behaviour.digest: policies.behaviour.path},
        "reference": policies.start.path,
        "policy_settings": config.policy.model_dump(mode="json"),
        "training": config.training.model_dump(mode="json"),
        "optimiser": str(optimiser) if optimiser and optimiser.is_dir() else None,
        "iteration": bench.iteration, "step": bench.iteration + 1, "seed": config.seed,
    }


def files(store: Store, ref: StageRef) -> list[str]:
    """The stage's files of training rows, relative to the store's root."""
    parts = store.manifest(ref)["parts"]
    return [f"{ref.key.folder}/{part['file']}" for part in parts if part["table"] == "training_rows" and part["rows"]]


def local_files(store: Store, ref: StageRef) -> list[Path]:
    """The same as files of this host."""
    found = files(store, ref)
    folder = store.local(ref.key.folder) if found else Path()
    return [folder / path.rpartition("/")[2] for path in found]


def _row(bench: Workbench, result: dict[str, Any], path: str) -> dict[str, Any]:
    """What the job reported under a column's name, plus what only the flow knows. Nothing reported: null is not allowed,
    so a figure that does not apply is NaN (float columns)."""
    known = {"iteration": bench.iteration, "parent_policy": bench.policies.learner.digest, "path": path,
             "canary_error": math.nan if bench.canary_error is None else bench.canary_error}
    return {column.name: known.get(column.name, result.get(column.name)) for column in UPDATES}


def sweep_staging(run: Path) -> None:
    """Remove what a killed update left behind."""
    shutil.rmtree(run / ".staging", ignore_errors=True)
