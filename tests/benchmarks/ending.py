"""Seconds until a run has ended after Ctrl-C, SIGTERM or a cancel over the API, in the middle of a stage, on the
embedded engine: `python -m tests.benchmarks.ending [WAY] ...`. The goal is 10 s.

A stage is at work from the first shard of the one before on. Each figure is of a run of its own.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from r3l.store.stage import Store
from tests.support.prefect_world import BIN, ENDED, SECURED, Served, served, wait

STAGES = {"base": "tasks", "reflections": "base", "retries": "reflections", "updates": "training_rows"}  # after which
WAYS = ("Ctrl-C", "SIGTERM", "SIGHUP", "cancel")
SMALL = ["--set", "rollout.tasks=4"]
INTO_S = 1.5  # of the stage's work, before it is ended
LIMIT_S = 600.0


def stored(store: Path) -> set[str]:
    return {ref.stage for ref in Store.open(str(store)).stages("ending", "", 0)}


def reached(store: Path, stage: str, run: subprocess.Popen[bytes]) -> Callable[[], bool]:
    def there() -> bool:
        assert run.poll() is None, f"the run ended by itself before {stage}"
        return STAGES[stage] in stored(store)

    return there


def seconds(way: str, stage: str, store: Path, server: Served | None) -> tuple[float, float | None]:
    """From the signal to the end of the process; with a server also to the final state of the flow run."""
    alone = {name: value for name, value in os.environ.items() if name not in SECURED}
    command = [str(BIN / "r3l"), "iterate", "--run", "ending", "--store", str(store), "--quiet", *SMALL]
    with (store / "said").open("wb") as said:
        run = subprocess.Popen(
            command, env=server.environment if server else alone, stderr=said, start_new_session=True
        )
    wait(stage, LIMIT_S, reached(store, stage, run))
    time.sleep(INTO_S)
    assert run.poll() is None, f"{stage} was over"
    asked = newest(server) if server else {}
    children = psutil.Process(run.pid).children(recursive=True)
    began = time.monotonic()
    state = None
    if way == "Ctrl-C":
        os.killpg(run.pid, signal.SIGINT)
    elif way.startswith("SIG"):
        run.send_signal(signal.Signals[way])
    elif server:
        server.cancel(asked)
    if server:
        wait("the final state", LIMIT_S, lambda: newest(server)["state"]["type"] in ENDED)
        state = time.monotonic() - began
        assert newest(server)["state"]["type"] == "CANCELLED"
    assert run.wait(LIMIT_S) == 130, (store / "said").read_text()[-2000:]
    gone = time.monotonic() - began
    assert "updates" not in stored(store), "the iteration was over"
    assert not psutil.wait_procs(children, 10)[1], "a process is left"
    return gone, state


def newest(server: Served) -> dict[str, Any]:
    return server.asked("flow_runs", sort="START_TIME_DESC")[0]


def main(ways: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), []) as server:
        for way in ways:
            for stage in STAGES:
                store = Path(folder) / f"{way}-{stage}"
                store.mkdir()
                gone, state = seconds(way, stage, store, server if way == "cancel" else None)
                shown = f", flow run Cancelled after {state:.1f} s" if state is not None else ""
                print(f"{way} in {stage}: process gone after {gone:.1f} s{shown}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(WAYS))
