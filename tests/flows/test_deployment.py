"""`prefect server start`, a worker, `prefect deploy`, `prefect deployment run r3l/iterate`: for real, on loopback."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.flows.small import small_config

PREFECT = str(Path(sys.executable).parent / "prefect")
START_S, RUN_S = 180, 240


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(what: str, seconds: float, condition):
    """The first true answer of `condition` within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := condition():
            return answer
        time.sleep(1)
    raise AssertionError(f"{what}: not after {seconds} s")


@pytest.fixture
def server(tmp_path):
    """(api address, environment) of a server with a worker of the pool r3l and the deployments of prefect.yaml."""
    port = free_port()
    environment = os.environ | {
        "PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    environment.pop("PREFECT_PROFILES_PATH", None)
    logs = [(tmp_path / name).open("w") for name in ("server.log", "worker.log")]
    processes = [subprocess.Popen([PREFECT, "server", "start", "--port", str(port)], env=environment, stdout=logs[0], stderr=logs[0])]
    try:
        wait("the server", START_S, lambda: healthy(environment["PREFECT_API_URL"]))
        subprocess.run([PREFECT, "work-pool", "create", "r3l", "--type", "process"], env=environment, check=True, capture_output=True)
        subprocess.run([PREFECT, "--no-prompt", "deploy", "--all"], env=environment, check=True, capture_output=True)
        processes.append(subprocess.Popen([PREFECT, "worker", "start", "--pool", "r3l"], env=environment, stdout=logs[1], stderr=logs[1]))
        yield environment["PREFECT_API_URL"], environment
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
        for log in logs:
            log.close()


def healthy(api: str) -> bool:
    try:
        return httpx.get(f"{api}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.timeout(600)
def test_a_deployment_run_is_an_iteration_and_a_wrong_value_is_refused(server, tmp_path):
    api, environment = server
    found = httpx.get(f"{api}/deployments/name/r3l/iterate", timeout=30).json()
    fields = found["parameter_openapi_schema"]["definitions"]["RolloutSettings"]["properties"]
    assert "even, 2 to 256" in fields["group_size"]["description"]

    config = json.loads(small_config(tmp_path / "store").model_dump_json())
    wrong = config | {"rollout": config["rollout"] | {"group_size": 7}}
    answer = httpx.post(f"{api}/deployments/{found['id']}/create_flow_run", json={"parameters": {"config": wrong}}, timeout=30)
    assert answer.status_code == 409

    subprocess.run([PREFECT, "deployment", "run", "r3l/iterate", "--params", json.dumps({"config": config})], env=environment, check=True,
                   capture_output=True)
    state = wait("the flow run", RUN_S, lambda: ended(api))
    assert state["type"] == "COMPLETED", state
    keys = {one["key"] for one in httpx.post(f"{api}/artifacts/filter", json={}, timeout=30).json()}
    assert {"r3l-small-iteration", "r3l-small-figures", "r3l-small-progress"} <= keys
    assert (tmp_path / "store" / "small" / "iteration=00000" / "updates" / "stage.json").is_file()


def ended(api: str):
    runs = httpx.post(f"{api}/flow_runs/filter", json={}, timeout=30).json()
    return next((run["state"] for run in runs if run["state"]["type"] in {"COMPLETED", "FAILED", "CRASHED"}), None)
