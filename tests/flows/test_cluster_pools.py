"""infra/prefect.sh on a real Prefect server with the pools of a cluster, and an iteration through them. Minutes long.

Kubernetes itself is a stand-in that runs a job's command as a process here: what is real are server, workers, pools,
templates, jobs.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.flows.small import small_config
from tests.support.prefect_world import ENDED, Served, served, start, wait
from tests.support.scripted_player import ScriptedPlayer

pytest.importorskip("prefect_kubernetes")
from tests.support.stand_in_cluster import StandInCluster

TEMPLATES = "infra/k8s/base/templates"
KEY = "r3l:planted-key-of-prefect"
POOLS = {
    "R3L_POOL_TEMPLATE": f"{TEMPLATES}/flow-run.json",
    "R3L_UPDATE_POOL": "r3l-update",
    "R3L_SHARD_POOL": "r3l-shards",
    "R3L_UPDATE_POOL_TEMPLATE": f"{TEMPLATES}/update.json",
    "R3L_REGISTRY": "registry.example.org/",
    "R3L_UPDATE_VARIABLES": json.dumps(
        {"nodes": 1, "limits": {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8"}}
    ),
}
WORKER = {
    "PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_ENABLED": "false",  # it watches pods, of which there are none
    "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_AUTH_STRING_SECRET_NAME": "prefect-client",
    "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_AUTH_STRING_SECRET_KEY": "PREFECT_API_AUTH_STRING",
    "PREFECT_API_AUTH_STRING": KEY,
    "PREFECT_SERVER_API_AUTH_STRING": KEY,
}
PLAYED = [
    "engine.kind=vllm_server",
    "environment.kind=household",
    "environment.level=easy",
    "environment.max_turns=8",
    "environment.reply_tokens=80",
    "environment.workers=1",
    "rollout.tasks=2",
    "training.processes=1",
    "placement.shards=workers",
    "placement.update_deployment=r3l-update/update",
]


def ended(server: Served) -> dict[str, Any] | None:
    """The state of the flow r3l's run, once it has ended."""
    runs = server.asked("flow_runs", flows={"name": {"any_": ["r3l"]}})
    return next((run["state"] for run in runs if run["state"]["type"] in ENDED), None)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_an_iteration_through_the_pools_of_a_cluster(tmp_path: Path) -> None:
    player, root = ScriptedPlayer(), tmp_path / "store"
    project = {"PREFECT_HOME": str(tmp_path / "job-prefect"), "R3L_STORE": str(root)}
    secrets = {"prefect-client": {"PREFECT_API_AUTH_STRING": KEY}, "objects": {}, "engine": {}}
    cluster = StandInCluster(tmp_path, project, secrets)
    variables = POOLS | WORKER | {"KUBECONFIG": str(cluster.kubeconfig())}
    config = small_config(root, *PLAYED, f'engine.urls="{player.url}"')
    try:
        with served(tmp_path, [["bash", "infra/prefect.sh"]], **variables) as server:
            others = [start(server, name, "worker", "start", "--pool", name) for name in ("r3l-update", "r3l-shards")]
            pools = {one["name"]: one["type"] for one in server.asked("work_pools")}
            server.prefect(
                "deployment",
                "run",
                "r3l/iterate",
                "--params",
                json.dumps({"config": json.loads(config.model_dump_json())}),
            )
            state = wait("the iteration", 1500, lambda: ended(server))
            for one in others:
                os.killpg(one.pid, signal.SIGKILL)
        assert pools == {"r3l": "kubernetes", "r3l-update": "kubernetes", "r3l-shards": "process"}
        assert state["type"] == "COMPLETED", f"{state}\n{cluster.said()}"
    finally:
        cluster.close()
        player.stop()
    assert cluster.refused == []
    images = [job["spec"]["template"]["spec"]["containers"][0]["image"] for job in cluster.jobs.values()]
    assert images == ["registry.example.org/r3l-flows:0.1.0", "registry.example.org/r3l-trainer:0.1.0"]
    update = list(cluster.jobs.values())[1]["spec"]["template"]["spec"]["containers"][0]
    assert update["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert KEY not in json.dumps(cluster.jobs)
    assert check_run(Store.open(str(root)), "small") == []
