"""The update job: `python -m r3l.training --job job.json`, or the same under torchrun.

One JSON object a line on stdout: part, start, scored, micro_batch, out_of_memory, finish, failed. Exit status 0, or 1 with
the cause.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from r3l.errors import R3LError
from r3l.training.job import read_job
from r3l.training.parallel.launcher import end_with_launcher


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m r3l.training", description="take one optimiser step over training rows"
    )
    parser.add_argument("--job", required=True, help="JSON file of the job (r3l.training.job.Job)")
    arguments = parser.parse_args()
    started = time.perf_counter()
    end_with_launcher()
    try:
        job = read_job(arguments.job)
        from r3l.training.parallel.ranks import join, leave
        from r3l.training.update import run_update

        ranks = join()
        say = emit if ranks.leads else silent
        result = run_update(job, ranks, say, import_seconds=time.perf_counter() - started)
        leave()
    except R3LError as error:
        emit("failed", cause=str(error))
        print(f"r3l.training: {escaped(str(error))}", file=sys.stderr)
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


def escaped(text: str) -> str:
    """Return a text as JSON escapes it, so that nothing in it acts on a terminal."""
    return json.dumps(text)[1:-1]


def silent(event: str, **fields: object) -> None:
    """Ignore the output of ranks other than the first."""


if __name__ == "__main__":
    sys.exit(main())
