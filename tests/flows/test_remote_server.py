"""The update on another work pool, for real: a Prefect server, a worker for it, kills and cancellation. Minutes
long."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.flows.small import small_config
from tests.support.prefect_world import PREFECT, Served, served, start, wait

REGISTER = [
    [PREFECT, "work-pool", "create", "r3l", "--type", "process"],
    [PREFECT, "work-pool", "create", "gpu", "--type", "process"],
    [PREFECT, "--no-prompt", "deploy", "--name", "iterate"],
    [PREFECT, "--no-prompt", "deploy", "--name", "update", "--pool", "gpu"],
]
PATIENCE_S = 600
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Cluster:
    """The server, and hosts that run the update: each a worker of the pool gpu whose processes are known by a
    variable."""

    def __init__(self, server, store: Path) -> None:
        self.server, self.store = server, store

    def host(self, name: str) -> None:
        environment = {**self.server.environment, "R3L_TEST_HOST": name}
        start(Served(self.server.api, environment, self.server.folder), name, "worker", "start", "--pool", "gpu")

    def config(self, *assignments: str):
        return small_config(
            self.store, "placement.update_deployment=r3l-update/update", "placement.silent_s=15",
            "placement.heartbeat_s=1", "training.micro_batch_tokens=64", *assignments,
        )  # fmt: skip

    def iterate(self, *assignments: str) -> subprocess.Popen[str]:
        """One iteration, in a process of its own."""
        code = (
            "import sys; from flows.iterate import iterate; from r3l.config import Config; "
            "iterate(Config.model_validate_json(sys.argv[1]))"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code, self.config(*assignments).model_dump_json()], env=self.server.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def updates(self) -> list[dict]:
        """Flow runs of r3l-update, the oldest first."""
        flows = self.server.asked("flows", flows={"name": {"any_": ["r3l-update"]}})
        runs = self.server.asked(
            "flow_runs", flows={"id": {"any_": [flow["id"] for flow in flows]}}, sort="EXPECTED_START_TIME_ASC"
        )
        return runs if flows else []

    def training(self) -> list[int]:
        """Processes of update jobs."""
        return [
            pid
            for pid in pids()
            if b"r3l.training" in read(f"/proc/{pid}/cmdline")
            and str(self.store).encode() in read(f"/proc/{pid}/cmdline")
        ]

    def lose(self, name: str) -> int:
        """SIGKILL every process of a host at once, as when its power goes. How many it had."""
        mine = [pid for pid in pids() if f"R3L_TEST_HOST={name}".encode() in read(f"/proc/{pid}/environ").split(b"\0")]
        for pid in mine:
            os.kill(pid, signal.SIGKILL)
        return len(mine)

    def close(self) -> None:
        for name in ("a", "b", "c"):
            self.lose(name)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with served(folder, REGISTER) as server:
        made = Cluster(server, folder / "store")
        try:
            yield made
        finally:
            made.close()


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said[-3000:]
    return said


def test_a_lost_host_s_update_is_done_on_another_one(cluster):
    cluster.host("a")
    parent = cluster.iterate()
    wait("the update on host a", PATIENCE_S, cluster.training)
    assert cluster.lose("a") >= 3  # worker, flow run, job
    cluster.host("b")
    ended(parent)
    first, second = cluster.updates()
    assert (first["state"]["type"], second["state"]["type"]) == ("CRASHED", "COMPLETED")
    assert (first["parameters"]["attempt"], second["parameters"]["attempt"]) == (0, 1)
    store = Store.open(str(cluster.store))
    assert check_run(store, "small") == []
    assert store.next_iteration("small") == 1


def test_a_killed_flow_joins_the_update_that_goes_on(cluster):
    """Its next run asks for the same work, and gets the flow run that is under way."""
    before = len(cluster.updates())
    parent = cluster.iterate()
    wait("the update", PATIENCE_S, cluster.training)
    os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()
    ended(cluster.iterate("iteration=1"))
    assert [run["state"]["type"] for run in cluster.updates()[before:]] == ["COMPLETED"]
    assert Store.open(str(cluster.store)).next_iteration("small") == 2


def test_a_cancelled_flow_cancels_the_update_and_its_process(cluster):
    before = len(cluster.updates())
    cluster.host("c")
    config = json.loads(cluster.config("iteration=2").model_dump_json())
    cluster.server.prefect("deployment", "run", "r3l/iterate", "--params", json.dumps({"config": config}))
    wait("the update", PATIENCE_S, cluster.training)
    [run] = [run for run in cluster.server.asked("flow_runs") if run["name"] == "small iteration=2"]
    cluster.server.prefect("flow-run", "cancel", run["id"])
    wait("the end of the job", 90, lambda: not cluster.training())
    wait("its state", 90, lambda: cluster.updates()[before]["state"]["type"] == "CANCELLED")
    ended(cluster.iterate("iteration=2"))  # from the stored shards on
    assert [run["state"]["type"] for run in cluster.updates()[before:]] == ["CANCELLED", "COMPLETED"]
    assert check_run(Store.open(str(cluster.store)), "small") == []
