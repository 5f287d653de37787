"""The updates stage: the job description of the update, and the row made from its result."""

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from r3l.errors import Pruned, StoreError
from r3l.pipeline.logs import log
from r3l.pipeline.policies import optimiser_of
from r3l.pipeline.stages import stage_io
from r3l.pipeline.update.local import line_counter, policy_place, take_step
from r3l.pipeline.workbench import Workbench
from r3l.records import Event, OptimiserStep
from r3l.store.files import staging
from r3l.store.layout import STAGING, StageRef, line_folder
from r3l.store.policies.places import fetch_optimiser, fetch_policy
from r3l.store.policies.snapshots import read_update
from r3l.store.stage import Store
from r3l.training.job import JobSpec, UpdateResult


def update_tables(
    bench: Workbench, rows: Sequence[StageRef], bases: Sequence[StageRef], groups: int, older: dict[str, str]
) -> stage_io.Tables:
    """Run the job, put its policy where the run keeps them, and make the tables of the stage.

    Args:
        bases: the stages whose turns the drift is measured on, where it is bounded.
        groups: groups that count in the batch's mean.
        older: digest to folder of the policies that sampled replayed rows.
    """
    config, place = bench.config, policy_place(line_folder(bench.config.run, bench.config.branch), bench.iteration)
    bench.progress.add("updates")
    bench.progress.say("updates", "starts a process of its own" if config.training.processes else "begins")
    log().info("updates: the job of iteration %d starts", bench.iteration)
    job_spec = job(bench, groups, older)
    bases = [] if config.training.max_drift is None else bases
    job_spec["turns"] = [path for ref in bases for path in files(bench.store, ref, "turns")]
    paths = [path for ref in rows for path in files(bench.store, ref, "training_rows")]
    result = bench.placement.update(bench, job_spec, paths) if bench.placement else None
    takes_here = result is None
    if result is None:
        if not config.training.overlap:  # else the engine samples meanwhile
            bench.tools.make_room()
        job_spec["turns"] = [str(path) for ref in bases for path in local_files(bench.store, ref, "turns")]
        job_spec["rows"] = [str(path) for ref in rows for path in local_files(bench.store, ref, "training_rows")]
        result = take_step(
            bench.store,
            line_folder(config.run, config.branch),
            bench.iteration,
            job_spec,
            line_counter(bench.progress),
            bench.going_on,
            stopped=bench.stopped,
            waiting=bench.tools.trainer,
        )
    bench.progress.finish("updates")
    score_files = result.get("scores", [])
    scores = _scores(bench.store, score_files)
    for path in score_files if takes_here else ():  # another host's job is found again by what it left
        bench.store.files.delete(path)
        (bench.store.files.cache / path).unlink(missing_ok=True)
    return {
        "updates": _rows(bench, result, f"policies/{place.rpartition('/')[2]}/policy"),
        "training_scores": scores,
        "events": [
            Event(bench.iteration, "updates", result["policy"], one["event"], one["reason"], one.get("detail", ""))
            for one in result.get("events", [])
        ],
    }


def policy_is_there(bench: Workbench, ref: StageRef) -> bool:
    """Tell whether the policy and the optimiser's state of a stored update are still what it wrote; where they aren't,
    the update is taken again."""
    policy = read_update(bench.store, ref)
    try:
        fetch_policy(bench.store, policy.place, policy.policy)
        fetch_optimiser(bench.store, policy.optimiser_place, policy.optimiser)
    except StoreError as error:
        log().warning("%s", error)
        return False
    return True


def job(bench: Workbench, groups: int, older: dict[str, str]) -> JobSpec:
    """Describe the job but for its rows and the folder that it writes to: everything it may know, as paths and
    settings."""
    config, policies = bench.config, bench.policies
    optimiser = optimiser_of(policies)
    return {
        "groups": groups,
        "policy": {
            "path": policies.learner.path,
            "digest": policies.learner.digest,
            "base_path": policies.learner.base_path,
        },
        "policies": {**older, policies.behaviour.digest: policies.behaviour.path},
        "reference": policies.start.path,
        "policy_settings": config.policy.model_dump(mode="json"),
        "training": config.training.model_dump(mode="json"),
        "optimiser": str(optimiser) if optimiser else None,
        "optimiser_digest": policies.optimiser or None,
        "iteration": bench.iteration,
        "step": policies.steps + 1,
        "seed": config.seed,
    }


def files(store: Store, ref: StageRef, table: str) -> list[str]:
    """List the stage's files of a table, relative to the store's root. Raise `Pruned` where columns of it were emptied:
    a job would find nothing to train on, and its row would stand in place of the one that is there."""
    if store.pruned(ref, table):
        raise Pruned(
            f"stage {ref.key}: columns of {table} were pruned, so that its update can't be taken again; go on from a "
            "later iteration, or fork from one whose policy is there"
        )
    parts = store.manifest(ref)["parts"]
    return [f"{ref.key.folder}/{part['file']}" for part in parts if part["table"] == table and part["rows"]]


def local_files(store: Store, ref: StageRef, table: str) -> list[Path]:
    """Fetch the same as files of this host."""
    paths = files(store, ref, table)
    folder = store.local(ref.key.folder) if paths else Path()
    return [folder / path.rpartition("/")[2] for path in paths]


def _scores(store: Store, paths: Sequence[str]) -> pa.Table | list[Any]:
    """Read the files of all ranks, of the store or of a folder beside it, in the order of the rows' ids."""
    tables = []
    for path in paths:
        content = Path(path).read_bytes() if Path(path).is_absolute() else store.files.read(path)
        if content is None:
            raise StoreError(f"{path}: the update's scores are not there; run the iteration again")
        tables.append(pq.read_table(pa.BufferReader(content)))
    return pa.concat_tables(tables).sort_by("row_id") if tables else []


def _rows(bench: Workbench, result: UpdateResult, path: str) -> list[OptimiserStep]:
    """Put what the job reported of each step under a column's name, with what only the flow knows. Nothing reported:
    null is not allowed, so a figure that does not apply is NaN (float columns)."""
    flow_columns: dict[str, Any] = {
        "policy": result["policy"],
        "optimiser": result["optimiser"],
        "iteration": bench.iteration,
        "parent_policy": bench.policies.learner.digest,
        "path": path,
        "canary_error": math.nan if bench.canary_error is None else bench.canary_error,
    }
    columns = {column.name for column in fields(OptimiserStep)}
    rows = (
        {name: value for name, value in (step | flow_columns).items() if name in columns} for step in result["steps"]
    )
    return [OptimiserStep(**row) for row in rows]


def sweep_staging(run: Path, iteration: int) -> None:
    """Remove what killed updates left behind. The caller holds the lock of `iteration`; the updates of others go on."""
    staging.sweep(run / STAGING, iteration)
