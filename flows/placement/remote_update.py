"""The update on another work pool: its job description, and the flow `r3l-update` that runs it there.

What it needs lies in the store: rows, the policy by its digest, the optimiser's state. A job that died begins again
from the last durable step, the one that the iteration before wrote; one that had put its policy in place is found, not
done again.
"""

import json
from typing import Any

from prefect import flow

from flows.placement.heartbeat import beating, counts_of
from flows.placement.remote_jobs import Errand, run_remote
from r3l.errors import StoreError
from r3l.exploration.progress import Progress
from r3l.pipeline.logs import log
from r3l.pipeline.stages.identity import CODE_VERSIONS
from r3l.pipeline.update.local import line_counter, policy_place, take_step
from r3l.pipeline.workbench import Workbench
from r3l.store.digests import fingerprint_of
from r3l.store.files import staging
from r3l.store.layout import iteration_folder, line_folder
from r3l.store.policies.places import fetch_optimiser, fetch_policy, place_in_store
from r3l.store.stage import Store
from r3l.training.job import JobSpec, UpdateResult

RESULT = "result.json"
STAGED = ".elsewhere"


def ask(bench: Workbench, job: JobSpec, rows: list[str]) -> UpdateResult:
    """Have the job done by the deployment that is set, and give back what `take_step` gives.

    Args:
        job: the job's spec with this host's paths of policies.
        rows: files of training rows, relative to the store's root.
    """
    config, store = bench.config, bench.store
    line = line_folder(config.run, config.branch)
    folder = f"{iteration_folder(config.run, config.branch, bench.iteration)}/elsewhere"
    beat = f"{folder}/update-beat.json"
    request = {
        "job": portable(store, job, rows),
        "start": bench.policies.start.digest,
        "line": line,
        "heartbeat": beat,
        "heartbeat_s": config.placement.heartbeat_s,
    }
    key = fingerprint_of([request["job"], CODE_VERSIONS["updates"]])
    store.files.put(f"{folder}/update.json", json.dumps(request | {"key": key}, indent=1).encode())
    place = policy_place(line, bench.iteration)

    def finished() -> UpdateResult | None:
        left = json.loads(store.files.read(f"{place}/{RESULT}") or b"{}")
        return left["result"] if left.get("key") == key else None

    errand = Errand(
        config.placement.update_deployment,
        f"r3l-update-{key}",
        {"store": store.root, "job": f"{folder}/update.json"},
        beat,
    )
    return run_remote(errand, store.files, config.placement, finished, bench.stopped, bench.count)


def portable(store: Store, job: JobSpec, rows: list[str]) -> JobSpec:
    """Write the spec with places in the store instead of this host's paths. A starting policy is put into the store
    first."""
    policy = job["policy"]
    places = {digest: place_in_store(store, path, digest) for digest, path in job["policies"].items()}
    # The base of an adapter is the starting policy, as the reference is.
    base = place_in_store(store, policy["base_path"]) if policy["base_path"] else None
    return job | {
        "rows": rows,
        "policies": places,
        "reference": place_in_store(store, job["reference"]),
        "policy": {
            "digest": policy["digest"],
            "path": place_in_store(store, policy["path"], policy["digest"]),
            "base_path": base,
        },
        "optimiser": place_in_store(store, job["optimiser"], "") if job["optimiser"] else None,
    }


def at_home(store: Store, job: JobSpec, start: str) -> JobSpec:
    """Write the spec with paths of this host: everything fetched from the store, every policy checked by its digest."""
    policy = job["policy"]
    turns = job.get("turns", [])
    folders = sorted({path.rpartition("/")[0] for path in [*job["rows"], *turns]})
    here = {folder: store.local(folder) for folder in folders}
    rows, turns = (
        [str(here[path.rpartition("/")[0]] / path.rpartition("/")[2]) for path in paths]
        for paths in (job["rows"], turns)
    )
    base = str(fetch_policy(store, policy["base_path"], start)) if policy["base_path"] else None
    return job | {
        "rows": rows,
        "turns": turns,
        "policies": {digest: str(fetch_policy(store, place, digest)) for digest, place in job["policies"].items()},
        "reference": str(fetch_policy(store, job["reference"], start)),
        "policy": {
            "digest": policy["digest"],
            "path": str(fetch_policy(store, policy["path"], policy["digest"])),
            "base_path": base,
        },
        "optimiser": job["optimiser"] and str(fetch_optimiser(store, job["optimiser"], job["optimiser_digest"])),
    }


@flow(name="r3l-update", flow_run_name="{job}")
def update(store: str, job: str, attempt: int = 0) -> dict[str, Any]:
    """Take the optimiser steps of an iteration on this host, for a flow `r3l` that waits for it.

    Args:
        store: folder or s3:// address of the store.
        job: the job's file in the store.
        attempt: which try of the job this is, 0-based.
    """
    shared_store = Store.open(store)
    request = json.loads(shared_store.files.read(job) or b"null")
    if request is None:
        raise StoreError(f"{job}: no such job in {shared_store.root}; the flow r3l-update is started by the flow r3l")
    spec: JobSpec = request["job"]
    # Of tries that died, or that this one replaces.
    staging.sweep(shared_store.files.cache / request["line"] / STAGED, spec["iteration"])
    progress = Progress()
    with beating(
        shared_store.files, request["heartbeat"], attempt, request["heartbeat_s"], counts_of(progress)
    ) as beat:
        log().info(
            "iteration %d: %d files of rows, policy %s", spec["iteration"], len(spec["rows"]), spec["policy"]["digest"]
        )
        job_here = at_home(shared_store, spec, request["start"])
        result = take_step(
            shared_store, request["line"], spec["iteration"], job_here, line_counter(progress), beat.check, STAGED
        )
        place = policy_place(request["line"], spec["iteration"])
        shared_store.files.put(f"{place}/{RESULT}", json.dumps({"key": request["key"], "result": result}).encode())
    return {"policy": result["policy"], "loss": result.get("loss")}
