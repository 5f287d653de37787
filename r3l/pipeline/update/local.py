"""One update job on this host: it runs in a staging folder, then moves to the run's policies."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from r3l.engines.canary import CANARY
from r3l.exploration.progress import Progress
from r3l.pipeline.logs import log
from r3l.pipeline.update.output import WaitingProcess
from r3l.pipeline.update.process import launch, settle
from r3l.store.files.staging import staged_update
from r3l.store.layout import STAGING
from r3l.store.policies.snapshots import optimiser_digest, snapshot_digest
from r3l.store.stage import Store
from r3l.training.job import JobSpec, UpdateResult


def policy_place(line: str, iteration: int) -> str:
    """Name the folder, relative to the store's root, that an iteration's update writes."""
    return f"{line}/policies/iteration={iteration:05d}"


def take_step(
    store: Store,
    line: str,
    iteration: int,
    job: JobSpec,
    on_line: Callable[[dict[str, Any]], None],
    settling: Callable[[], None] = lambda: None,
    staged: str = STAGING,
    stopped: threading.Event | None = None,
    waiting: WaitingProcess | None = None,
) -> UpdateResult:
    """Run the job and give back its update.json, with the digests of the policy and the optimiser's state it wrote.

    Args:
        job: the job's spec, but for the folder that it writes to.
        settling: called when all is written and before it is put in its place; what it raises stops that.
        stopped: set where nobody waits for the step any more.
        waiting: does the job where it has a process.

    Raises:
        TrainingError: the job failed or hung.
        Interrupted: `stopped` was set.
    """
    staging = store.files.cache / line / staged / staged_update(iteration)
    place = policy_place(line, iteration)
    result = compute_step(job, staging, on_line, stopped, waiting)
    if "canary" in result:
        (staging / CANARY).write_text(json.dumps({"policy": result["policy"], **result["canary"]}))
    settling()
    settle(staging, store.files.cache / place, iteration)
    store.publish(place)
    result["scores"] = [f"{place}/{Path(file).name}" for file in result["scores"]]
    return result


def compute_step(
    job: JobSpec,
    folder: Path,
    on_line: Callable[[dict[str, Any]], None],
    stopped: threading.Event | None = None,
    waiting: WaitingProcess | None = None,
) -> UpdateResult:
    """Run the job in `folder` and leave there what it writes; the result has the digests of that. Raise as `take_step`
    does."""
    training = job["training"]
    result = launch(
        job | {"out": str(folder)}, folder, training["processes"], training["timeout_s"], on_line, stopped, waiting
    )
    result["policy"] = snapshot_digest(folder / "policy")
    result["optimiser"] = optimiser_digest(folder / "optimizer")
    result["scores"] = [str(folder / name) for name in result.get("scores", [])]
    return result


PARTS = {
    "survey": "reads the training rows",
    "load": "loads the policy",
    "scoring": "scores the rows with the policies that sampled them",
    "passes": "passes forward and backward",
    "drift": "measures how far the step moved",
    "save": "writes the policy",
}
SAID = 4  # lines of the log while the passes go on


def line_counter(progress: Progress) -> Callable[[dict[str, Any]], None]:
    """Make the function that takes the job's lines: it counts micro-batches and tokens, says what the job is doing, and
    logs its milestones."""

    step, steps = 0, 1

    def on_line(line: dict[str, Any]) -> None:
        nonlocal step, steps
        event, tokens = line.get("event"), line.get("tokens")
        progress.add("updates", tokens=float(tokens) if isinstance(tokens, int | float) else 0.0)
        if event == "part":
            progress.say("updates", PARTS.get(line["part"], line["part"]))
        elif event == "step":
            step, steps = line["number"], line["of"]
        elif event == "start":
            log().info(
                "updates: %d rows of %d groups, %d tokens where they share prefixes",
                line["rows"],
                line["groups"],
                line["trie_tokens"],
            )
        elif event == "out_of_memory":
            log().warning("updates: out of memory; the passes begin again with smaller limits (%s)", line["limits"])
        elif event == "micro_batch" and "of" in line:
            batches_done, of = step * line["of"] + line["index"] + 1, steps * line["of"]
            progress.put("updates", done=batches_done, planned=of)
            if SAID * batches_done // of > SAID * (batches_done - 1) // of:
                log().info("updates: micro-batch %d of %d", batches_done, of)

    return on_line
