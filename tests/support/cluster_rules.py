"""The house's rules for what runs in a cluster, as functions from parsed manifests to findings."""

from collections.abc import Iterator
from typing import Any

import kubernetes_validate

from tests.support.infra_rules import ASKS_FOR, SECRET_NAME, lacks_key, unpinned

Resource = dict[str, Any]
VERSION = "1.33"  # of Kubernetes: the schemas that the manifests are held against
TALKS_TO_THE_CLUSTER = {"worker"}  # service accounts
ENDS = {"Job"}


def schema_finding(resource: Resource) -> str | None:
    """What Kubernetes' own schema, with no unknown field, says against a resource."""
    try:
        kubernetes_validate.validate(resource, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{title(resource)}: {'.'.join(map(str, error.path))}: {error.message[:200]}"
    return None


def title(resource: Resource) -> str:
    return f"{resource['kind']}/{resource['metadata'].get('name', resource['metadata'].get('generateName', ''))}"


def pod_of(resource: Resource) -> dict[str, Any] | None:
    return (
        resource["spec"]["template"]["spec"]
        if resource["kind"] in {"Deployment", "StatefulSet", "DaemonSet", "Job"}
        else None
    )


def cluster_findings(resources: list[Resource], secrets: dict[str, set[str]]) -> list[str]:
    """What is wrong with the resources of a cluster.

    Args:
        secrets: name of a secret -> the variables in it.
    """
    found = [f"{title(one)}: {said}" for one in resources for said in resource_findings(one, secrets)]
    return found + list(network_findings(resources)) + list(ingress_findings(resources))


def resource_findings(resource: Resource, secrets: dict[str, set[str]]) -> Iterator[str]:
    kind = resource["kind"]
    if kind in {"ClusterRole", "ClusterRoleBinding"}:
        yield "has rights in the whole cluster"
    if kind == "Role":
        yield from role_findings(resource)
    if kind == "ConfigMap":
        yield from (f"plain secret {name}" for name in resource.get("data", {}) if SECRET_NAME.search(name))
    if pod := pod_of(resource):
        yield from pod_findings(pod)
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            yield from (f"{container['name']}: {said}" for said in container_findings(container))
            yield from (f"{container['name']}: {said}" for said in server_findings(container, secrets))
        if kind not in ENDS:
            yield from (f"{one['name']}: no liveness probe" for one in pod["containers"] if "livenessProbe" not in one)


def role_findings(role: Resource) -> Iterator[str]:
    for rule in role["rules"]:
        if "*" in {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}:
            yield "has rights without limit"
        if set(rule["resources"]) & {"secrets", "roles", "rolebindings", "serviceaccounts", "pods/exec"}:
            yield "may read secrets or give itself rights"


def pod_findings(pod: dict[str, Any]) -> Iterator[str]:
    context = pod.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield "may run as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "no seccomp profile"
    account = pod.get("serviceAccountName", "default")
    if account == "default" or (
        pod.get("automountServiceAccountToken") is not False and account not in TALKS_TO_THE_CLUSTER
    ):
        yield "has a token of the cluster without need"
    if any(one in pod for one in ("hostNetwork", "hostPID", "hostIPC")) or any(
        "hostPath" in one for one in pod.get("volumes", [])
    ):
        yield "reaches into its host"


def container_findings(container: dict[str, Any]) -> Iterator[str]:
    if unpinned(container["image"]):
        yield f"image {container['image']} has no exact version"
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False or context.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "keeps privileges"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "writes into its image"
    if not {"cpu", "memory"} <= container.get("resources", {}).get("limits", {}).keys():
        yield "no limits of cpu and memory"
    for one in container.get("env", []):
        if (
            SECRET_NAME.search(one["name"])
            and "value" in one
            and not one["name"].endswith(("_SECRET_NAME", "_SECRET_KEY"))
        ):
            yield f"plain secret {one['name']}"


def server_findings(container: dict[str, Any], secrets: dict[str, set[str]]) -> Iterator[str]:
    """A container with ports asks for its key; one without does not listen."""
    if container.get("ports"):
        named = [one["secretRef"]["name"] for one in container.get("envFrom", []) if "secretRef" in one]
        yield from lacks_key(container["name"], {variable for name in named for variable in secrets.get(name, set())})
        if container["name"] not in ASKS_FOR:
            yield "listens, and asks for no key"


def network_findings(resources: list[Resource]) -> Iterator[str]:
    policies = [one["spec"] for one in resources if one["kind"] == "NetworkPolicy"]
    if {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} not in policies:
        yield "no policy closes the network by default"
    open_to = [one["podSelector"].get("matchLabels", {}) for one in policies if one.get("ingress")]
    for service in (one for one in resources if one["kind"] == "Service"):
        if service["spec"]["selector"] not in open_to:
            yield f"{title(service)}: no policy says who may ask it"
        if service["spec"].get("type", "ClusterIP") != "ClusterIP":
            yield f"{title(service)}: is published past the ingress"


def ingress_findings(resources: list[Resource]) -> Iterator[str]:
    for ingress in (one for one in resources if one["kind"] == "Ingress"):
        covered = {host for one in ingress["spec"].get("tls", []) for host in one["hosts"]}
        for rule in ingress["spec"]["rules"]:
            if rule["host"] not in covered:
                yield f"{title(ingress)}: {rule['host']} has no TLS"
            for path in rule["http"]["paths"]:
                if (name := path["backend"]["service"]["name"]) not in {"prefect", "audit"}:
                    yield f"{title(ingress)}: {name} is reachable from outside"
