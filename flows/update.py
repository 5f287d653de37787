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
from r3l.engines.base import PolicySnapshot
from r3l.records import Event
from r3l.store.layout import StageRef
from r3l.store.policies import snapshot_digest
from r3l.store.schemas import UPDATES


def update_tables(bench: Workbench, rows: Sequence[StageRef]) -> stored.Tables:
    """Run the job, put its policy where the run keeps them, and return the tables of the stage."""
    config, run = bench.config, bench.store.run_folder(bench.config.run, bench.config.branch)
    staging = run / ".staging" / f"update-{bench.iteration:05d}-{uuid.uuid4().hex[:8]}"
    final = run / "policies" / f"iteration={bench.iteration:05d}"
    bench.tally.add("updates", planned=1)
    result = launch(job(bench, rows, staging), staging, config.training.processes, config.training.timeout_s,
                    lambda line: _progress(bench, line))
    digest = snapshot_digest(staging / "policy")
    if "canary" in result:
        (staging / "canary.json").write_text(json.dumps({"policy": digest, **result["canary"]}))
    settle(staging, final)
    bench.tally.add("updates", done=1)
    return {"updates": [_row(bench, result, digest, f"policies/{final.name}/policy")],
            "events": [Event(bench.iteration, "updates", digest, one["event"], one["reason"], one.get("detail", ""))
                       for one in result.get("events", [])]}


def job(bench: Workbench, rows: Sequence[StageRef], out: Path) -> dict[str, Any]:
    """The job's spec: everything it may know, as paths and settings."""
    config, policies = bench.config, bench.policies
    optimiser = policies.learner_folder / "optimizer" if policies.learner_folder else None
    return {
        "rows": [str(path) for ref in rows for path in bench.store.part_paths(ref, "training_rows")],
        "groups": config.rollout.tasks,
        "policy": _snapshot(policies.learner),
        "policies": {one.digest: _snapshot(one) for one in (policies.learner, policies.behaviour)},
        "reference": _snapshot(policies.start),
        "policy_settings": config.policy.model_dump(mode="json"),
        "training": config.training.model_dump(mode="json"),
        "out": str(out),
        "optimiser": str(optimiser) if optimiser and optimiser.is_dir() else None,
        "iteration": bench.iteration, "step": bench.iteration, "seed": config.seed,
    }


def _snapshot(policy: PolicySnapshot) -> dict[str, str | None]:
    return {"path": policy.path, "digest": policy.digest, "base_path": policy.base_path}


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
