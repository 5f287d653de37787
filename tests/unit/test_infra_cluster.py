"""The cluster's manifests: valid by Kubernetes' own schemas, by the house's rules, and rendered where kustomize is at
hand."""

import copy
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.infra_rules import ASKS_FOR

pytest.importorskip("kubernetes_validate")
from tests.support.cluster_rules import Resource, cluster_findings, pod_of, schema_finding, title

INFRA = Path(__file__).parents[2] / "infra"
BASE = INFRA / "k8s" / "base"
OVERLAYS = ("one-gpu", "many-gpu")


@pytest.fixture(scope="module")
def base() -> list[Resource]:
    """The resources as they are written, before any overlay."""
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in BASE.glob("*.yaml")} == {*names, "kustomization.yaml"}
    return [one for name in names for one in yaml.safe_load_all((BASE / name).read_text())]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the manifests with keys, as a user has them."""
    copied = tmp_path_factory.mktemp("cluster") / "k8s"
    shutil.copytree(INFRA / "k8s", copied)
    subprocess.run(["bash", str(INFRA / "keys.sh"), str(copied / "base" / "secrets")], check=True, capture_output=True)
    return copied


@pytest.fixture(scope="module")
def secrets(tree) -> dict[str, set[str]]:
    """The secrets that kustomize makes of the key files."""
    made = yaml.safe_load((BASE / "kustomization.yaml").read_text())["secretGenerator"]
    return {
        one["name"]: {line.split("=")[0] for line in (tree / "base" / one["envs"][0]).read_text().splitlines()}
        for one in made
    }


def named(resources: list[Resource], name: str) -> Resource:
    return next(one for one in resources if title(one) == name)


def test_every_manifest_is_valid_by_the_schemas_of_kubernetes(base):
    assert [said for one in base if (said := schema_finding(one))] == []


@pytest.mark.parametrize(("name", "path", "value"), [
    ("Deployment/engine", ("spec", "replica"), 1),
    ("Deployment/engine", ("spec", "replicas"), "one"),
    ("NetworkPolicy/to-engine", ("spec", "podselector"), {}),
    ("Ingress/r3l", ("spec", "rules"), {}),
    ("HorizontalPodAutoscaler/environments", ("spec", "maxReplicas"), None),
])  # fmt: skip
def test_the_schemas_find_what_is_misspelt(base, name, path, value):
    wrong = copy.deepcopy(named(base, name))
    wrong[path[0]][path[1]] = value
    assert schema_finding(wrong)


def test_the_manifests_break_no_rule(base, secrets):
    assert cluster_findings(base, secrets) == []


def broken(base: list[Resource], name: str, change) -> list[Resource]:
    wrong = copy.deepcopy(base)
    change(named(wrong, name))
    return wrong


def container(resource: Resource) -> dict:
    return pod_of(resource)["containers"][0]


BREAKS = [
    ("Deployment/prefect", lambda one: pod_of(one)["securityContext"].pop("runAsNonRoot"), "may run as root"),
    ("Deployment/engine", lambda one: container(one).update(image="vllm/vllm-openai:latest"), "engine: image"),
    ("Deployment/engine", lambda one: container(one).update(envFrom=[]), "engine: listens without a key"),
    (
        "Deployment/engine",
        lambda one: container(one)["env"].append({"name": "R3L_ENGINE_KEY", "value": "x"}),
        "engine: plain secret R3L_ENGINE_KEY",
    ),
    ("Deployment/audit", lambda one: container(one)["resources"].pop("limits"), "audit: no limits"),
    ("Deployment/audit", lambda one: container(one)["securityContext"].clear(), "audit: keeps privileges"),
    ("Deployment/environments", lambda one: container(one).update(ports=[{"containerPort": 1}]), "asks for no key"),
    ("Deployment/environments", lambda one: pod_of(one).update(automountServiceAccountToken=True), "has a token"),
    ("Job/register", lambda one: pod_of(one).update(hostNetwork=True), "reaches into its host"),
    ("Role/worker", lambda one: one["rules"][0].update(verbs=["*"]), "has rights without limit"),
    ("Role/worker", lambda one: one["rules"][1]["resources"].append("secrets"), "may read secrets"),
    ("NetworkPolicy/nothing-by-default", lambda one: one["spec"].update(policyTypes=["Ingress"]), "closes the network"),
    ("NetworkPolicy/to-engine", lambda one: one["spec"].update(podSelector={}), "Service/engine: no policy says who"),
    ("Service/engine", lambda one: one["spec"].update(type="LoadBalancer"), "is published past the ingress"),
    ("Ingress/r3l", lambda one: one["spec"].pop("tls"), "prefect.example.org has no TLS"),
    ("Deployment/worker", lambda one: container(one).pop("livenessProbe"), "worker: no liveness probe"),
]


@pytest.mark.parametrize(("name", "change", "said"), BREAKS, ids=[said for _, _, said in BREAKS])
def test_the_rules_find_what_breaks_them(base, secrets, name, change, said):
    found = cluster_findings(broken(base, name, change), secrets)
    assert [one for one in found if said in one], found


def test_who_asks_whom_is_allowed_on_both_sides(base):
    """Every label `r3l/asks-X` that a pod carries has a policy that lets it out, and X a policy that lets it in."""
    policies = {one["metadata"]["name"]: one["spec"] for one in base if one["kind"] == "NetworkPolicy"}
    for asked in ("prefect", "objects", "engine"):
        label = {f"r3l/asks-{asked}": "yes"}
        port = {"postgres": 5432, "prefect": 4200, "objects": 7070, "engine": 8000}[asked]
        out = policies[f"asks-{asked}"]
        assert out["podSelector"] == {"matchLabels": label}
        assert out["egress"] == [{"to": [{"podSelector": {"matchLabels": {"app": asked}}}], "ports": [{"port": port}]}]
        [into] = policies[f"to-{asked}"]["ingress"]
        assert {"podSelector": {"matchLabels": label}} in into["from"]
        assert into["ports"] == [{"port": port}]
        [served] = named(base, f"Service/{asked}")["spec"]["ports"]
        assert served["port"] == port
    carried = {
        label
        for one in base
        if pod_of(one)
        for label in one["spec"]["template"]["metadata"]["labels"]
        if label.startswith("r3l/")
    }
    assert {label.removeprefix("r3l/") for label in carried} <= set(policies) | {"asks-cluster", "asks-hub"}


def test_environment_workers_scale_with_their_processors(base):
    scaler = named(base, "HorizontalPodAutoscaler/environments")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "environments"
    assert scaler["maxReplicas"] > scaler["minReplicas"] >= 1
    assert "cpu" in container(named(base, "Deployment/environments"))["resources"]["requests"]
    assert "replicas" not in named(base, "Deployment/environments")["spec"], (
        "a number here would undo the scaler's at every apply"
    )


@pytest.fixture(scope="module", params=OVERLAYS)
def rendered(request, tree) -> tuple[str, list[Resource]]:
    client = shutil.which("kustomize") or shutil.which("kubectl")
    if client is None:
        pytest.skip("neither kustomize nor kubectl is at hand")
    line = [client, "build"] if client.endswith("kustomize") else [client, "kustomize"]
    done = subprocess.run([*line, str(tree / request.param)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return request.param, list(yaml.safe_load_all(done.stdout))


def test_an_overlay_renders_to_what_is_valid_and_keeps_the_rules(rendered, secrets):
    _, resources = rendered
    assert [said for one in resources if (said := schema_finding(one))] == []
    assert cluster_findings(resources, secrets) == []
    assert {one["metadata"]["namespace"] for one in resources if one["kind"] not in {"Namespace"}} == {"r3l"}
    made = {one["metadata"]["name"]: set(one["data"]) for one in resources if one["kind"] == "Secret"}
    assert made == secrets
    used = {
        one["secretRef"]["name"]
        for resource in resources
        if (pod := pod_of(resource))
        for each in pod["containers"]
        for one in each.get("envFrom", [])
        if "secretRef" in one
    }
    assert used == set(secrets)
    assert set(ASKS_FOR) <= {one["metadata"]["name"] for one in resources if one["kind"] == "Service"}


@pytest.mark.parametrize(
    ("overlay", "resource", "count"), [("one-gpu", "nvidia.com/gpu.shared", 1), ("many-gpu", "nvidia.com/gpu", 8)]
)
def test_the_overlays_say_what_gpus_there_are(tree, rendered, overlay, resource, count):
    name, resources = rendered
    if name != overlay:
        pytest.skip("of the other overlay")
    engine = container(named(resources, "Deployment/engine"))
    assert engine["resources"]["limits"][resource] == count
    ranks = next(one["value"] for one in engine["env"] if one["name"] == "GPUS")
    assert int(ranks) == count, "one data-parallel rank a GPU"
    variables = {one["name"]: one.get("value") for one in container(named(resources, "Job/register"))["env"]}
    assert f'"{resource}": "{count}"' in variables["R3L_UPDATE_VARIABLES"]
    assert all(
        one["image"].startswith("registry.example.org/r3l-")
        for each in resources
        if (pod := pod_of(each))
        for one in pod["containers"]
        if "r3l-" in one["image"]
    )


def test_time_slicing_is_valid_too():
    resource = yaml.safe_load((INFRA / "k8s" / "one-gpu" / "time-slicing.yaml").read_text())
    assert schema_finding(resource) is None
    offered = yaml.safe_load(resource["data"]["config.yaml"])["sharing"]["timeSlicing"]
    assert offered["renameByDefault"] is True  # as nvidia.com/gpu.shared
    assert offered["resources"] == [{"name": "nvidia.com/gpu", "replicas": 2}]
