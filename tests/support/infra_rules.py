"""The house's rules for what runs in containers, as functions from a parsed file to findings: an empty list where all
hold."""

import re
from collections.abc import Iterator
from typing import Any

# The server's name in compose and in the cluster, and the variable of the key that it asks for.
ASKS_FOR = {
    "postgres": "POSTGRES_PASSWORD",
    "prefect": "PREFECT_SERVER_API_AUTH_STRING",
    "objects": "ROOT_SECRET_KEY",
    "engine": "R3L_ENGINE_KEY",
    "audit": "R3L_AUDIT_KEY",
}
LISTENS_NOT = {"worker", "register", "environments", "trainer"}
PASSES_ON = {"gateway"}  # to servers that ask for their own key
SECRET_NAME = re.compile(r"(PASSWORD|SECRET|TOKEN|AUTH_STRING|(^|_)KEY(_ID)?$)")
EXACT_VERSION = re.compile(r"^[\w.\-/:]+:v?\d+\.\d+(\.\d+)?[\w.\-]*(@sha256:[0-9a-f]{64})?$")


def unpinned(image: str) -> bool:
    """No version, or one that moves: `latest`, `17`, `3-latest`."""
    return not EXACT_VERSION.match(image) or "latest" in image


def compose_findings(compose: dict[str, Any], keys: dict[str, set[str]]) -> list[str]:
    """What is wrong with a compose file.

    Args:
        keys: env file, as the compose file names it -> the variables in it.
    """
    return [
        f"{name}: {said}"
        for name, service in compose["services"].items()
        for said in service_findings(name, service, keys)
    ]


def service_findings(name: str, service: dict[str, Any], keys: dict[str, set[str]]) -> Iterator[str]:
    if unpinned(service.get("image", "")):
        yield f"image {service.get('image')!r} has no exact version"
    if str(service.get("user", "root")).split(":")[0] in {"root", "0"}:
        yield "runs as root"
    if not {"no-new-privileges:true"} <= set(service.get("security_opt", [])) or service.get("cap_drop") != ["ALL"]:
        yield "keeps privileges"
    if service.get("read_only") is not True:
        yield "writes into its image"
    yield from (
        f"plain secret {one}"
        for one, value in service.get("environment", {}).items()
        if SECRET_NAME.search(one) and value
    )
    limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
    if not {"cpus", "memory"} <= limits.keys():
        yield "no limits of cpu and memory"
    if "healthcheck" not in service:
        yield "no health check"
    yield from lacks_key(name, {one for file in service.get("env_file", []) for one in keys.get(file, set())})
    if "ports" in service and name not in PASSES_ON:
        yield "is published past the gateway"


def lacks_key(name: str, given: set[str]) -> Iterator[str]:
    if name in ASKS_FOR and ASKS_FOR[name] not in given:
        yield f"listens without a key: {ASKS_FOR[name]} is not given"
    if name not in {*ASKS_FOR, *LISTENS_NOT, *PASSES_ON}:
        yield "is not known: does it listen, and what key does it ask for?"


def dockerfile_findings(text: str) -> list[str]:
    """What is wrong with a Dockerfile: base images without an exact version, targets whose last user is root."""
    stages: dict[str, tuple[str, str]] = {}
    findings, name = [], ""
    for line in text.splitlines():
        if found := re.match(r"FROM (\S+) AS (\S+)", line):
            base, name = found.groups()
            user = stages[base][1] if base in stages else "root"
            stages[name] = (base, user)
            if base not in stages and unpinned(base):
                findings.append(f"{name}: base image {base} has no exact version")
        elif line.startswith("USER "):
            stages[name] = (stages[name][0], line.split()[1])
        elif re.match(r"(ENV|ARG) .*", line) and SECRET_NAME.search(line.split("=")[0].split()[-1]):
            findings.append(f"{name}: {line.split('=')[0]} looks like a secret")
    used = {base for base, _ in stages.values()}
    copied = set(re.findall(r"--from=(\S+)", text))
    return findings + [
        f"{one}: runs as root"
        for one, (_, user) in stages.items()
        if one not in used | copied and user.split(":")[0] in {"root", "0"}
    ]
