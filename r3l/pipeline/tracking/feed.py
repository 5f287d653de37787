"""Trackers get the stored metrics as by `r3l track`, each in a process of its own. One that is down or hangs costs its
time-out and no row."""

import os
import signal
import subprocess
from tempfile import TemporaryFile

from r3l.config import Config
from r3l.pipeline.logs import log
from r3l.store.stage import Store
from r3l.system.child_environment import PYTHON, importable


def feed(config: Config, store: Store) -> dict[str, str]:
    """Write the run's metrics to every tracker of the settings.

    Returns:
        tracker -> why it has not got them; empty where it has. Whatever it lacks is filled the next time, or by `r3l
        track`.
    """
    return {to: feed_tracker(config, store, to) for to in config.tracking.to}


def feed_tracker(config: Config, store: Store, to: str) -> str:
    where = str(getattr(config.tracking, to))
    command = [*PYTHON, "-m", "r3l.pipeline.tracking", config.run, to, where, config.branch, store.root]
    reason = run_tracker(command, config.tracking.timeout_s)
    if reason:
        log().warning(
            "tracker %s has not got the figures: %s. They are in the store; later: r3l track %s --to %s",
            to,
            reason,
            config.run,
            to,
        )
    else:
        log().info("tracker %s has the figures", to)
    return reason


def run_tracker(command: list[str], timeout_s: float) -> str:
    """Run the command. The result is "" if it succeeds in time; otherwise its last line, or that it was stopped
    together with its children."""
    with TemporaryFile("w+", errors="replace") as words:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            env=importable(os.environ),
        )
        try:
            code = process.wait(timeout_s)
        except BaseException as stopped:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(stopped, subprocess.TimeoutExpired):
                return f"no answer within {timeout_s:g} s (tracking.timeout_s)"
            raise
        words.seek(0)
        lines = [line.strip() for line in words if line.strip()]
    if code == 0:
        return ""
    return lines[-1][:500] if lines else f"exit code {code}"
