"""A whole iteration with a scripted policy, in a process of its own that may be killed at any moment.

The stages, the store, the lock and the update's launch are the real ones; they run on threads here, and the update job
a script that takes its time and writes a policy. `python -m tests.flows.scripted STORE KILLS SEED [MUTANT]` runs one
undisturbed iteration, then others under fire, and prints what came of it as JSON.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from r3l.config import Config, compose
from r3l.engines.base import PolicySnapshot
from r3l.pipeline import iteration
from r3l.pipeline.policies import Policies
from r3l.pipeline.runner import Threads
from r3l.pipeline.stages import calls
from r3l.pipeline.update import process
from r3l.pipeline.workbench import Workbench
from r3l.store.files.staging import GUARD
from r3l.store.stage import Store
from tests.support import records
from tests.support.fakes import explorer
from tests.support.rehearsal import walker
from tests.support.store_iteration import update_row
from tests.support.store_mutants import MUTANTS

CALL_S = 0.002
UPDATE = """
import json, pathlib, struct, sys, time
out = pathlib.Path(json.load(open(sys.argv[1]))["out"])
for step in range(5):
    print(json.dumps({"event": "micro_batch", "tokens": 1}), flush=True)
    time.sleep(0.02)
(out / "policy").mkdir()
(out / "policy" / "config.json").write_text("{}")
header = b"{}"
(out / "policy" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
figures = json.loads(sys.argv[2])
(out / "update.json").write_text(json.dumps(figures | {"steps": [figures]}))
"""
NOT_OF_THE_JOB = {"iteration", "policy", "parent_policy", "path", "canary_error", "optimiser"}
FIGURES = {name: value or 0 for name, value in update_row(0).items() if name not in NOT_OF_THE_JOB}


def config_of(root: str, run: str) -> Config:
    return compose(
        run=run,
        assignments=[
            "rollout.tasks=4",
            "rollout.group_size=4",
            "rollout.tasks_per_shard=1",
            "rollout.shards_in_flight=3",
            f"store.root={root}",
        ],
    )


def play(root: str, run: str) -> None:
    """One iteration, or what is left of it."""
    slow = explorer(lambda name, prompt: (time.sleep(CALL_S), walker(name, prompt))[1])
    calls.draw = lambda config, iteration: records.corridor_tasks(iteration, 4)
    process._command = lambda spec, processes: [sys.executable, "-S", "-c", UPDATE, str(spec), json.dumps(FIGURES)]
    Workbench._start = lambda self: slow
    config, store = config_of(root, run), Store.open(root)
    snapshot = PolicySnapshot(root, "policy-0")
    policies = Policies(snapshot, snapshot, snapshot, None, None, optimiser="")
    iteration.policies.find = lambda *_: policies
    with iteration.open_iteration(config, store, 0, runner=Threads()) as bench:
        iteration.run_stages(bench)


def fork(root: str, run: str, alive_s: float | None) -> tuple[bool, float]:
    """Play in a forked process; kill its whole process group after `alive_s` seconds. (finished, seconds)."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        code = 1
        try:
            play(root, run)
            code = 0
        finally:
            os._exit(code)
    with contextlib.suppress(OSError):  # whoever comes first: the child may be killed before it could do so itself
        os.setpgid(child, child)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if status:
                raise RuntimeError(f"{run}: the iteration ended with status {status}")
            return True, time.monotonic() - began
        if alive_s is not None and time.monotonic() - began > alive_s:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False, time.monotonic() - began
        time.sleep(0.001)


def committed(root: str, run: str) -> dict[str, tuple[str, str]]:
    """Stage and shard -> digest, and the time of the commit: a stage that is done again gets another one."""
    store = Store.open(root)
    return {f"{ref.stage}/{ref.shard}": (ref.digest, store.manifest(ref)["committed_at"]) for ref in store.stages(run)}


def done_again(before: dict[str, tuple[str, str]], after: dict[str, tuple[str, str]]) -> list[str]:
    """The stages that were committed before and are not the very same commits now."""
    return [stage for stage, commit in before.items() if after.get(stage) != commit]


def main(root: str, kills: int, seed: int, mutant: str = "") -> dict[str, Any]:
    """Iterations of their own run each, killed at random moments until `kills` kills are spent."""
    MUTANTS[mutant]()
    rng = random.Random(seed)
    _, whole_s = fork(root, "calm", None)
    calm = committed(root, "calm")
    _, found_s = fork(root, "calm", None)  # again: all of it is found
    figures: dict[str, Any] = {
        "seconds": whole_s, "found_s": found_s, "kills": 0, "iterations": 0,
        "redone": len(done_again(calm, committed(root, "calm"))), "most_redone": 0, "lost": [], "kept": 0,
    }  # fmt: skip
    while figures["kills"] < kills:
        run, finished = f"fire-{figures['iterations']}", False
        figures["iterations"] += 1
        while not finished:
            before = committed(root, run)
            finished, _ = fork(root, run, rng.uniform(0, whole_s) if figures["kills"] < kills else None)
            after = committed(root, run)
            figures["kills"] += not finished
            figures["kept"] += len(before)
            redone = done_again(before, after)
            figures["redone"] += len(redone)
            figures["most_redone"] = max(figures["most_redone"], len(redone))
        found = committed(root, run)
        figures["lost"] += [f"{run}: {stage}" for stage in calm if stage not in found]
        figures["lost"] += [
            f"{run}: {stage} has other rows"
            for stage in calm
            if stage in found and deterministic(stage) and found[stage][0] != calm[stage][0]
        ]
    figures["staged"] = [
        str(path)
        for path in [*Path(root).glob("*/.staging/*"), *Path(root, ".staging").iterdir()]
        if path.name != GUARD
    ]
    return figures


def deterministic(stage: str) -> bool:
    """Stages without wall times in their rows."""
    return stage.split("/")[0] in {"tasks", "distilled", "credit", "training_rows"}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:5])))
