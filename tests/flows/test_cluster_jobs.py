"""The jobs that Prefect's worker makes from the templates of infra/k8s: valid, without root, without a key in their
text."""

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_SERVER_API_AUTH_STRING,
    temporary_settings,
)
from pydantic import ValidationError

from tests.support.cluster_rules import container_findings, pod_findings, schema_finding

pytestmark = pytest.mark.skipif(find_spec("prefect_kubernetes") is None, reason="prefect_kubernetes is not installed")
TEMPLATES = Path(__file__).parents[2] / "infra" / "k8s" / "base" / "templates"
PLANTED = "r3l:planted-auth-string"


def job_of(template: str, monkeypatch: pytest.MonkeyPatch, **values: Any) -> dict[str, Any]:
    """The manifest that the worker would send to the cluster, with the settings of infra/k8s/base/worker.yaml."""
    from prefect_kubernetes import worker as worker_module  # late: each process that collects tests would load it

    sent: list[dict[str, Any]] = []

    class Cluster:
        def __init__(self, client: Any) -> None:
            pass

        async def create_namespaced_job(self, namespace: str, manifest: dict[str, Any]) -> Any:
            sent.append(manifest)

    monkeypatch.setattr(worker_module, "BatchV1Api", Cluster)
    prefix = "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_AUTH_STRING_SECRET"
    monkeypatch.setenv(f"{prefix}_NAME", "prefect-client")
    monkeypatch.setenv(f"{prefix}_KEY", "PREFECT_API_AUTH_STRING")

    async def make() -> None:
        configuration = await worker_module.KubernetesWorkerJobConfiguration.from_template_and_values(
            json.loads((TEMPLATES / template).read_text()), values
        )
        configuration.prepare_for_flow_run(FlowRun(flow_id=uuid4(), name="happy-hare"))
        await worker_module.KubernetesWorker(work_pool_name="r3l")._create_job(configuration, None)

    monkeypatch.delenv("PREFECT_SERVER_API_AUTH_STRING", raising=False)  # of a server of this machine; no worker has it
    settings = {PREFECT_API_URL: "http://prefect:4200/api", PREFECT_API_AUTH_STRING: PLANTED}
    with temporary_settings(settings, restore_defaults={PREFECT_SERVER_API_AUTH_STRING}):
        asyncio.run(make())
    [manifest] = sent
    for name in ("parallelism", "completions"):  # Prefect wants them in the pod, where Kubernetes knows no such fields
        del manifest["spec"]["template"]["spec"][name]
    return manifest


CASES = [
    ("flow-run.json", {}),
    ("flow-run.json", {"limits": {"cpu": "4", "memory": "8Gi"}, "env": {"R3L_NOTE": "x"}}),
    ("update.json", {}),
    ("update.json", {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}}),
    (
        "update.json",
        {
            "nodes": 2,
            "image": "registry.example.org/r3l-trainer:0.1.0",
            "limits": {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8"},
        },
    ),
]


@pytest.mark.parametrize("template", ["flow-run.json", "update.json"])
def test_the_server_takes_a_template_only_with_a_variable_for_every_gap(template):
    from prefect.server.schemas.actions import WorkPoolCreate

    written = json.loads((TEMPLATES / template).read_text())
    assert WorkPoolCreate(name="r3l", type="kubernetes", base_job_template=written).base_job_template == written
    del written["variables"]["properties"]["limits"]
    with pytest.raises(ValidationError, match="limits"):
        WorkPoolCreate(name="r3l", type="kubernetes", base_job_template=written)


@pytest.mark.parametrize(("template", "values"), CASES)
def test_a_job_is_valid_and_keeps_the_rules(monkeypatch, template, values):
    job = job_of(template, monkeypatch, **values)
    assert schema_finding(job) is None
    pod = job["spec"]["template"]["spec"]
    assert list(pod_findings(pod)) == []
    assert [said for one in pod["containers"] for said in container_findings(one)] == []
    assert pod["serviceAccountName"] == "tokenless"
    variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert variables.items() >= values.get("env", {}).items()


@pytest.mark.parametrize("template", ["flow-run.json", "update.json"])
def test_the_key_of_prefect_is_a_reference_never_text(monkeypatch, template):
    job = job_of(template, monkeypatch)
    assert PLANTED not in json.dumps(job)
    variables = {one["name"]: one for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    reference = {"secretKeyRef": {"name": "prefect-client", "key": "PREFECT_API_AUTH_STRING"}}
    assert variables["PREFECT_API_AUTH_STRING"]["valueFrom"] == reference
    assert variables["PREFECT_API_URL"]["value"] == "http://prefect:4200/api"


def test_an_update_over_two_nodes_meets_at_the_first(monkeypatch):
    job = job_of("update.json", monkeypatch, nodes=2)
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}  # the first one's end is the end
    [one] = spec["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in one["env"]}
    assert (variables["PET_NNODES"], variables["PET_MASTER_ADDR"]) == ("2:2", "$(JOB_NAME)-0.update")
    assert variables["R3L_JOB_POINTER"].startswith("/srv/r3l/"), "on the volume that all nodes see"
    names = [each["name"] for each in one["env"]]
    assert names.index("JOB_NAME") < names.index("PET_MASTER_ADDR"), "Kubernetes puts in only what was named before"
    assert one["command"] == ["bash", "infra/update_node.sh"]
    assert one["args"][:3] == ["prefect", "flow-run", "execute"]
    assert spec["template"]["spec"]["subdomain"] == "update"


def test_a_flow_run_gets_the_keys_of_store_and_engine_by_reference_and_an_update_that_of_the_store(monkeypatch):
    for template, expected in (("flow-run.json", {"objects", "engine"}), ("update.json", {"objects"})):
        one = job_of(template, monkeypatch)["spec"]["template"]["spec"]["containers"][0]
        assert {each["secretRef"]["name"] for each in one["envFrom"] if "secretRef" in each} == expected
