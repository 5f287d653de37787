"""The update as a process of its own: `python -m r3l.training`, watched, streamed, and moved into place when it is
whole."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from r3l.errors import TrainingError
from r3l.pipeline.update.output import Output, WaitingProcess, begin_process, stop
from r3l.store.files.staging import staged_update
from r3l.training.job import JobSpec, UpdateResult
from r3l.training.parallel.nodes import announce
from r3l.training.parallel.nodes import command as _command

LOG = "stderr.log"


def launch(
    job: JobSpec,
    folder: Path,
    processes: int,
    timeout_s: float,
    on_line: Callable[[dict[str, Any]], None],
    stopped: threading.Event | None = None,
    waiting: WaitingProcess | None = None,
) -> UpdateResult:
    """Run the job in `folder` and give back its update.json.

    Args:
        processes: 1, more under torchrun, or 0: no process of its own.
        on_line: called with each JSON line that the job prints.
        timeout_s: seconds without a line before the job counts as hung and is stopped.
        stopped: set where nobody waits for the job any more: it is stopped.
        waiting: does the job where it has a process with so many ranks.

    Raises:
        TrainingError: it failed or hung; the message ends with what it said last.
        Interrupted: `stopped` was set.
    """
    if processes == 0:
        return run_here(job, on_line)
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / "job.json"
    spec.write_text(json.dumps(job, indent=1))
    announce(spec)
    process, output = (waiting.take(spec, processes) if waiting else None) or start_job(spec, processes)
    causes: list[str] = []
    try:
        for event in output.of_a_job(timeout_s, stopped or threading.Event()):
            causes += [str(event.get("cause"))] if event.get("event") == "failed" else []
            on_line(event)
    except BaseException:
        stop(process)
        raise
    if output.ended and process.wait():
        cause = causes[-1] if causes else _last_words(folder / LOG)
        raise TrainingError(f"the update job ended with exit code {process.returncode}: {cause}; job: {spec}")
    return result_of(job)


def start_job(spec: Path, processes: int) -> tuple[subprocess.Popen[str], Output]:
    """Start the job in a process that does nothing else; its log is a file beside the job."""
    with (spec.parent / LOG).open("w") as log:
        process = begin_process(_command(spec, processes), log)
    return process, Output(process)


def run_here(job: JobSpec, on_line: Callable[[dict[str, Any]], None]) -> UpdateResult:
    """Run the job in this process, without a watchdog: for policies whose step takes less time than starting a
    process."""
    from r3l.training.job import Job
    from r3l.training.parallel.ranks import Ranks
    from r3l.training.update import run_update

    run_update(Job.model_validate(job), Ranks(), lambda event, **fields: on_line({"event": event, **fields}))
    return result_of(job)


def result_of(job: JobSpec) -> UpdateResult:
    """Read what a finished job wrote."""
    result: UpdateResult = json.loads((Path(job["out"]) / "update.json").read_text())
    return result


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1][:500] if lines else "it said nothing"


def settle(staging: Path, final: Path, iteration: int) -> None:
    """Put the finished job's folder where the run keeps its policies; a leftover of a crashed try gives way."""
    if final.exists():
        grave = staging.parent / staged_update(iteration, "replaced")
        final.rename(grave)
        shutil.rmtree(grave)
    final.parent.mkdir(parents=True, exist_ok=True)
    staging.rename(final)
