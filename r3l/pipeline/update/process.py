"""The update as a process of its own: `python -m r3l.training`, watched, streamed, and moved into place when it is
whole."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from r3l.child_environment import child_environment
from r3l.errors import Interrupted, TrainingError
from r3l.store.files.process import mark
from r3l.store.files.staging import staged_update
from r3l.training.parallel.launcher import LAUNCHER
from r3l.training.parallel.nodes import announce
from r3l.training.parallel.nodes import command as _command

STOP_GRACE_S = 4.0  # an ended run ends within 10 s
LOOK_S = 0.5


def launch(
    job: dict[str, Any],
    folder: Path,
    processes: int,
    timeout_s: float,
    on_line: Callable[[dict[str, Any]], None],
    stopped: threading.Event | None = None,
) -> dict[str, Any]:
    """Run the job in `folder` and give back its update.json.

    Args:
        processes: 1, more under torchrun, or 0: no process of its own.
        on_line: called with each JSON line that the job prints.
        timeout_s: seconds without a line before the job counts as hung and is stopped.
        stopped: set where nobody waits for the job any more: it is stopped.

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
    with (
        (folder / "stderr.log").open("w") as stderr,
        subprocess.Popen(
            _command(spec, processes),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
            env=child_environment({"PYTHONUNBUFFERED": "1", LAUNCHER: mark()}),
        ) as process,
    ):
        causes: list[str] = []
        try:
            for line in _lines(process, timeout_s, stopped or threading.Event()):
                said = _parsed(line)
                causes += [str(said.get("cause"))] if said.get("event") == "failed" else []
                on_line(said)
        except BaseException:
            _stop(process)
            raise
    if process.returncode != 0:
        cause = causes[-1] if causes else _last_words(folder / "stderr.log")
        raise TrainingError(f"the update job ended with exit code {process.returncode}: {cause}; job: {spec}")
    return dict(json.loads((Path(job["out"]) / "update.json").read_text()))


def run_here(job: dict[str, Any], on_line: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run the job in this process, without a watchdog: for policies whose step takes less time than starting a process."""
    from r3l.training.job import Job
    from r3l.training.parallel.ranks import Ranks
    from r3l.training.update import run_update

    run_update(Job.model_validate(job), Ranks(), lambda event, **fields: on_line({"event": event, **fields}))
    return dict(json.loads((Path(job["out"]) / "update.json").read_text()))


def _lines(process: subprocess.Popen[str], timeout_s: float, stopped: threading.Event) -> Iterator[str]:
    """Yield lines of the job's output; a job that is silent for too long is stopped. The reader is a thread, since a
    blocked read can't be interrupted."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    silent_since = time.monotonic()
    while True:
        if stopped.is_set():
            raise Interrupted("the update job was stopped, since nobody waits for it any more")
        try:
            line = lines.get(timeout=min(timeout_s, LOOK_S))
        except queue.Empty:
            if time.monotonic() - silent_since < timeout_s:
                continue
            raise TrainingError(
                f"the update job was silent for {timeout_s:g} s and was stopped "
                "(training.timeout_s sets how long is allowed)"
            ) from None
        if line is None:
            return
        silent_since = time.monotonic()
        yield line


def _parsed(line: str) -> dict[str, Any]:
    try:
        parsed = json.loads(line)
    except json.JSONDecodeError:
        return {"event": "text", "text": line.rstrip()}
    return parsed if isinstance(parsed, dict) else {"event": "text", "text": line.rstrip()}


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"


def settle(staging: Path, final: Path, iteration: int) -> None:
    """Put the finished job's folder where the run keeps its policies; a leftover of a crashed try gives way."""
    if final.exists():
        grave = staging.parent / staged_update(iteration, "replaced")
        final.rename(grave)
        shutil.rmtree(grave)
    final.parent.mkdir(parents=True, exist_ok=True)
    staging.rename(final)
