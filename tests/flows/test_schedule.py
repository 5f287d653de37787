"""A schedule of the deployment r3l/iterate on a real server and worker: each tick trains, until it is paused."""

from pathlib import Path
from typing import Any

import pytest

from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.support.prefect_world import ENDED, Served, served, wait

REGISTER = [["bash", "infra/prefect.sh"]]  # as `r3l up` does: the runs after the first are forked
# Prefect's own plans every minute.
SOON = {"PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5"}
EVERY_S, PATIENCE_S = 45, 500  # where an iteration takes longer, the runs behind it wait
SMALL = {"tasks": 2, "group_size": 4}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Schedule:
    """A schedule of its own run, and what came of it."""

    def __init__(self, server: Served) -> None:
        self.server, self.store = server, server.folder / "store"
        config = {"run": "ticks", "environment": "household", "policy": "household", "rollout": SMALL}
        parameters = {"config": config | {"store": {"root": str(self.store)}}}
        self.deployment = server.answer("GET", "/deployments/name/r3l/iterate").json()["id"]
        schedule = {"schedule": {"interval": EVERY_S}, "parameters": parameters}
        server.answer("POST", f"/deployments/{self.deployment}/schedules", [schedule]).raise_for_status()

    def pause(self, paused: bool) -> None:
        """Do as the UI does."""
        self.server.answer("PATCH", f"/deployments/{self.deployment}", {"paused": paused}).raise_for_status()

    def iterations(self) -> list[int]:
        """Those that have taken their step."""
        paths = Path(self.store, "ticks").glob("iteration=*/updates/stage.json")
        return sorted(int(path.parent.parent.name.removeprefix("iteration=")) for path in paths)

    def trained(self, count: int) -> list[int]:
        """Wait until `count` iterations are complete."""
        return wait(f"{count} iterations", PATIENCE_S, lambda: len(self.iterations()) >= count and self.iterations())

    def runs(self, *states: str) -> list[dict[str, Any]]:
        return [run for run in self.server.asked("flow_runs") if run["state"]["name"] in states]

    def at_rest(self) -> bool:
        return all(run["state"]["type"] in ENDED for run in self.server.asked("flow_runs"))


def test_a_schedule_trains_until_it_is_paused_and_a_late_run_does_not(tmp_path):
    with served(tmp_path, REGISTER, **SOON) as server:
        schedule = Schedule(server)
        assert schedule.trained(3)[:3] == [0, 1, 2]

        server.prefect("work-pool", "pause", "r3l")
        wait("a run that is late", PATIENCE_S, lambda: schedule.runs("Late") and not schedule.runs("Running"))
        before = schedule.iterations()
        schedule.pause(True)
        server.prefect("work-pool", "resume", "r3l")
        wait("the end of the runs", PATIENCE_S, schedule.at_rest)
        assert schedule.iterations() == before
        messages = {run["state"]["message"] for run in schedule.runs("Cancelled")}
        assert messages == {"its deployment was paused after this run was scheduled"}

        schedule.pause(False)
        schedule.trained(len(before) + 1)
        assert check_run(Store.open(str(schedule.store)), "ticks") == []
