"""The updates stage: what the update job is told, and the row that its result becomes."""

from __future__ import annotations

import json
import math
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows import stored
from flows.update_job import launch, settle
from flows.workbench import Workbench
from r3l.records import Event
from r3l.store.layout import StageRef, line_folder
from r3l.store.policies import snapshot_digest
from r3l.store.schemas import UPDATES
from r3l.store.stage import Store


def update_tables(bench: Workbench, rows: Sequence[StageRef], groups: int, older: dict[str, str]) -> stored.Tables:
    """Run the job, put its policy where the run keeps them, and return the tables of the stage.

    Args:
        groups: groups that count in the batch's mean.
        older: digest to folder of the policies that sampled replayed rows.
    """
    config, run = bench.config, bench.store.run_folder(bench.config.run, bench.config.branch)
    staging = run / ".staging" / f"update-{bench.iteration:05d}-{uuid.uuid4().hex[:8]}"
    final = run / "policies" / f"iteration={bench.iteration:05d}"
    bench.tally.add("updates", planned=1)
    result = launch(job(bench, rows, groups, older, staging), staging, config.training.processes, config.training.timeout_s,
                    lambda line: _progress(bench, line))
    digest = snapshot_digest(staging / "policy")
    if "canary" in result:
        (staging / "canary.json").write_text(json.dumps({"policy": digest, **result["canary"]}))
    settle(staging, final)
    bench.store.publish(f"{line_folder(config.run, config.branch)}/policies/{final.name}")
    bench.tally.add("updates", done=1)
    return {"updates": [_row(bench, result, digest, f"policies/{final.name}/policy")],
            "events": [Event(bench.iteration, "updates", digest, one["event"], one["reason"], one.get("detail", ""))
                       for one in result.get("events", [])]}


def job(bench: Workbench, rows: Sequence[StageRef], groups: int, older: dict[str, str], out: Path) -> dict[str, Any]:
    """The job's spec: everything it may know, as paths and settings."""
    config, policies = bench.config, bench.policies
    optimiser = policies.learner_folder / "optimizer" if policies.learner_folder else None
    return {
        "rows": [str(path) for ref in rows for path in files(bench.store, ref)],
        "groups": groups,
        "policy": {"path": policies.learner.path, "digest": policies.learner.digest, "base_path": policies.learner.base_path},
        "policies": {**older, policies.behaviour.digest: policies.behaviour.path},
        "reference": policies.start.path,
        "policy_settings": config.policy.model_dump(mode="json"),
        "training": config.training.model_dump(mode="json"),
        "out": str(out),
        "optimiser": str(optimiser) if optimiser and optimiser.is_dir() else None,
        "iteration": bench.iteration, "step": bench.iteration + 1, "seed": config.seed,
    }


def files(store: Store, ref: StageRef) -> list[Path]:
    """The stage's training rows as local files."""
    parts = [part["file"] for part in store.manifest(ref)["parts"] if part["table"] == "training_rows" and part["rows"]]
    folder = store.local(ref.key.folder) if parts else Path()
    return [folder / name for name in parts]


def _progress(bench: Workbench, line: dict[str, Any]) -> None:
    tokens = line.get("tokens")
    bench.tally.add("updates", turns=1 if line.get("event") == "micro_batch" else 0,
                    tokens=float(tokens) if isinstance(tokens, int | float) else 0.0)


def _row(bench: Workbench, result: dict[str, Any], digest: str, path: str) -> dict[str, Any]:
    """What the job reported under a column's name, plus what only the flow knows. Nothing reported: null is not allowed,
    so a figure that does not apply is NaN (float columns)."""
    known = {"iteration": bench.iteration, "policy": digest, "parent_policy": bench.policies.learner.digest, "path": path,
             "canary_error": math.nan if bench.canary_error is None else bench.canary_error}
    return {column.name: known.get(column.name, result.get(column.name)) for column in UPDATES}


def sweep_staging(run: Path) -> None:
    """Remove what a killed update left behind."""
    shutil.rmtree(run / ".staging", ignore_errors=True)
