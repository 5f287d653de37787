"""The update job: `python -m r3l.training --job job.json`, or the same under torchrun.

Without `--job` the process imports what a job needs, and waits: each line on stdin is the path of a job file. With
`--processes N` it does jobs on the CPU with N - 1 forks of itself. It ends with stdin, after a job that failed, and
after a job on a GPU, which it would keep from others.

One JSON object a line on stdout: part, start, scored, micro_batch, out_of_memory, finish, failed, idle. Exit status 0,
or 1 with the cause.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from r3l.errors import R3LError
from r3l.system.memory import collect_less
from r3l.training.job import read_job
from r3l.training.parallel.launcher import end_with_launcher
from r3l.training.parallel.nodes import command

if TYPE_CHECKING:
    from r3l.training.parallel.ranks import Ranks


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m r3l.training", description="take the optimiser steps of one update over training rows"
    )
    parser.add_argument("--job", help="JSON file of the job (r3l.training.job.Job); empty: files are named on stdin")
    parser.add_argument("--processes", type=int, default=1, help="ranks that do the jobs of stdin together")
    arguments = parser.parse_args()
    collect_less()
    if not arguments.job:
        return wait_for_jobs(arguments.processes)
    end_with_launcher()
    from r3l.training.parallel.ranks import join, leave

    status = run_job(Path(arguments.job), join)
    if not status:
        leave()
    return status


def wait_for_jobs(processes: int) -> int:
    """Do the jobs that stdin names, one after another; the result is the exit status."""
    import torch

    import r3l.training.update  # noqa: F401 (the imports of a job, before there is one)
    from r3l.training.parallel.forked import fork
    from r3l.training.parallel.ranks import leave

    if processes > 1 and torch.cuda.is_available():
        processes = min(processes, torch.cuda.device_count())
        if processes > 1:  # a GPU does not outlive a fork
            return under_torchrun(sys.stdin.readline().strip(), processes)
    team = fork(processes)
    end_with_launcher()
    for path in team.paths():
        log_to_file(path)
        if status := run_job(path, team.join):
            return status
        # a process that has touched a GPU holds its memory: it ends, and the next job begins in a fresh one
        if torch.cuda.is_initialized():
            return 0
        if team.rank == 0:
            emit("idle")
    leave()
    return 0


def under_torchrun(path: str, processes: int) -> int:
    """Become torchrun's launcher of one job. The result is 0, where stdin named no job."""
    if path:
        log_to_file(Path(path))
        os.execv(sys.executable, command(Path(path), processes))
    return 0


def log_to_file(job: Path) -> None:
    """Append this process's stderr to a file beside the job."""
    with (job.parent / "stderr.log").open("a") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())


def run_job(path: Path, join: Callable[[], Ranks]) -> int:
    """Do one job; the result is the exit status."""
    start_time = time.perf_counter()
    try:
        job = read_job(path)
        import torch

        from r3l.training.update import run_update

        torch.set_flush_denormal(True)  # most weights of attention are: as zeros they take no time (data/LOG.md)
        ranks = join()
        say = emit if ranks.leads else silent
        result = run_update(job, ranks, say, import_seconds=time.perf_counter() - start_time)
    except R3LError as error:
        emit("failed", cause=str(error))
        # as JSON escapes it: nothing in it acts on a terminal
        print(f"r3l.training: {json.dumps(str(error))[1:-1]}", file=sys.stderr)
        return 1
    say(
        "finish",
        step=result["step"],
        loss=result["loss"],
        grad_norm=result["grad_norm"],
        seconds=result["seconds"],
        seconds_by_part=result["seconds_by_part"],
    )
    return 0


def emit(event: str, **fields: object) -> None:
    """Print one line of progress, which is also the sign of life for the watchdog."""
    print(json.dumps({"event": event, "time": time.time(), **fields}), flush=True)


def silent(event: str, **fields: object) -> None:
    """Swallow the progress of ranks other than the first."""


if __name__ == "__main__":
    sys.exit(main())
