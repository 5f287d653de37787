"""A schedule's iterations, each by a process that Prefect starts for it and each forked from the worker's warm process,
in turns on one server: `python -m tests.benchmarks.scheduled [PAIRS]` (3; a minute and a half a pair).

Both play the same run of the main job's embedded policy (8 tasks, N = 8). Processor seconds are those of the flow runs'
processes and of what these start. The warm process's own start is paid by the first run, which is not counted.
"""

import sys
import tempfile
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from flows.serving.flow_run import WARM
from tests.support.prefect_world import Served, served, wait

CONFIG = {"run": "scheduled", "environment": "household", "policy": "household"}
OURS, THEIRS = "forked", "Prefect's own"
MEASURES = ("s to Running", "s in all", "processor s")


def parents() -> list[psutil.Process]:
    """The worker and its warm process."""
    running = [(process, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [
        process for process, words in running if words[-4:] == ["worker", "start", "--pool", "r3l"] or WARM in words
    ]


def processor_seconds() -> float:
    """Of the flow runs that have ended, and of what they started."""
    wait("the end of the flow run's process", 60, lambda: not any(process.children() for process in parents()))
    times = [process.cpu_times() for process in parents()]
    return sum(one.children_user + one.children_system for one in times)


def choose(server: Served, command: str | None) -> None:
    """Have the pool start flow runs by this command."""
    template = job_template(server)
    template["variables"]["properties"]["command"]["default"] = command
    server.answer("PATCH", "/work_pools/r3l", {"base_job_template": template}).raise_for_status()


def job_template(server: Served) -> dict[str, Any]:
    return dict(server.answer("GET", "/work_pools/r3l").json()["base_job_template"])


def played(server: Served) -> dict[str, float]:
    """A flow run of the deployment, to its end."""
    before = processor_seconds()
    deployment = server.answer("GET", "/deployments/name/r3l/iterate").json()["id"]
    asked = {"parameters": {"config": CONFIG | {"store": {"root": str(server.folder / "store")}}}}
    run = server.answer("POST", f"/deployments/{deployment}/create_flow_run", asked).json()["id"]

    def ended() -> bool:
        return bool((server.answer("GET", f"/flow_runs/{run}").json().get("state") or {}).get("type") == "COMPLETED")

    wait("the flow run", 300, ended)
    states = server.answer("GET", f"/flow_run_states/?flow_run_id={run}").json()
    when = {state["name"]: datetime.fromisoformat(state["timestamp"]).timestamp() for state in states}
    figures = (when["Running"], when["Completed"])
    return dict(zip(MEASURES, (*(at - when["Pending"] for at in figures), processor_seconds() - before), strict=True))


def main(pairs: int = 3) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), [["bash", "infra/prefect.sh"]], guarded=True, R3L_HOME=folder) as server,
    ):
        command = job_template(server)["variables"]["properties"]["command"]["default"]
        played(server)  # makes the run, and starts the warm process
        wait("the warm process", 60, lambda: [*filter(Path.is_socket, Path(folder, "prefect").glob("warm-*"))])
        found: dict[str, list[dict[str, float]]] = {OURS: [], THEIRS: []}
        for _ in range(pairs):
            for name, chosen in ((THEIRS, None), (OURS, command)):
                choose(server, chosen)
                found[name].append(played(server))
                print(name, {key: round(value, 2) for key, value in found[name][-1].items()}, flush=True)
        forked = (Path(folder) / "prefect" / "warm.log").read_text().count("forked process")
        assert forked == pairs, f"{forked} of {pairs} were forked"
    for measure in MEASURES:
        of = {name: median(one[measure] for one in runs) for name, runs in found.items()}
        print(f"{measure:<14} {of[THEIRS]:6.1f} {of[OURS]:6.1f}   ratio {of[THEIRS] / of[OURS]:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
