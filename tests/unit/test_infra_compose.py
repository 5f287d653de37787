"""The compose file, the images and the keys: valid by the published schema, and by the house's own rules."""

import copy
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.support.infra_rules import ASKS_FOR, compose_findings, dockerfile_findings

builtin_schemas = pytest.importorskip("check_jsonschema.builtin_schemas")
ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((INFRA / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The keys as infra/keys.sh makes them."""
    made = tmp_path_factory.mktemp("infra") / "secrets"
    subprocess.run(
        ["bash", str(INFRA / "keys.sh"), str(made)],
        check=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "R3L_HOST": "lab"},
    )
    return made


def variables(folder: Path) -> dict[str, dict[str, str]]:
    return {
        path.name: dict(line.split("=", 1) for line in path.read_text().splitlines()) for path in folder.glob("*.env")
    }


@pytest.fixture(scope="module")
def keys(folder):
    return {f"secrets/{name}": set(found) for name, found in variables(folder).items()}


def test_it_is_a_compose_file_by_the_published_schema(compose):
    jsonschema.validate(compose, builtin_schemas.get_builtin_schema("vendor.compose-spec"))


def test_the_schema_finds_a_misspelt_option(compose):
    wrong = copy.deepcopy(compose)
    wrong["services"]["engine"]["enviroment"] = {}
    with pytest.raises(jsonschema.ValidationError, match="enviroment"):
        jsonschema.validate(wrong, builtin_schemas.get_builtin_schema("vendor.compose-spec"))


def test_docker_reads_it_where_it_is_at_hand(folder, tmp_path):
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not at hand")
    shutil.copytree(INFRA, tmp_path / "infra", ignore=shutil.ignore_patterns("secrets", ".env"))
    shutil.copytree(folder, tmp_path / "infra" / "secrets")
    line = [docker, "compose", "-f", str(tmp_path / "infra" / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_compose_file_breaks_no_rule(compose, keys):
    assert compose_findings(compose, keys) == []


@pytest.mark.parametrize(("service", "change", "said"), [
    ("worker", {"user": None}, "worker: runs as root"),
    ("engine", {"user": "0:0"}, "engine: runs as root"),
    ("prefect", {"image": "prefecthq/prefect:3-latest"}, "prefect: image"),
    ("postgres", {"image": "postgres:17"}, "postgres: image"),
    ("objects", {"image": None}, "objects: image"),
    ("audit", {"env_file": []}, "audit: listens without a key"),
    ("engine", {"environment": {"R3L_ENGINE_KEY": "x"}}, "engine: plain secret R3L_ENGINE_KEY"),
    ("prefect", {"environment": {"PREFECT_SERVER_DATABASE_PASSWORD": "x"}}, "prefect: plain secret"),
    ("worker", {"deploy": {}}, "worker: no limits"),
    ("audit", {"ports": ["4300:4300"]}, "audit: is published past the gateway"),
    ("objects", {"cap_drop": []}, "objects: keeps privileges"),
    ("gateway", {"read_only": False}, "gateway: writes into its image"),
    ("engine", {"healthcheck": None}, "engine: no health check"),
])  # fmt: skip
def test_the_rules_find_what_breaks_them(compose, keys, service, change, said):
    wrong = copy.deepcopy(compose)
    for name, value in change.items():
        if value is None:
            del wrong["services"][service][name]
        else:
            wrong["services"][service][name] = value
    assert [one for one in compose_findings(wrong, keys) if one.startswith(said)]


def test_a_new_server_has_to_say_what_key_it_asks_for(compose, keys):
    wrong = copy.deepcopy(compose)
    wrong["services"]["redis"] = copy.deepcopy(wrong["services"]["worker"]) | {"image": "redis:8.4.0"}
    assert compose_findings(wrong, keys) == ["redis: is not known: does it listen, and what key does it ask for?"]


def test_every_key_file_is_made_and_nobody_is_given_a_key_that_is_not_its_business(compose, keys):
    asked = {name: set(service.get("env_file", [])) for name, service in compose["services"].items()}
    assert set().union(*asked.values()) == set(keys)
    assert {name for name, files in asked.items() if "secrets/postgres.env" in files} == {"postgres"}
    assert {name for name, files in asked.items() if "secrets/prefect-server.env" in files} == {"prefect"}
    assert {name for name, files in asked.items() if "secrets/audit.env" in files} == {"audit"}
    assert {name for name, files in asked.items() if "secrets/objects.env" in files} == {"worker", "trainer", "audit"}
    assert {name for name, files in asked.items() if "secrets/engine.env" in files} == {"worker", "engine"}


def test_keys_are_long_their_owners_alone_and_the_same_on_both_sides(folder):
    made = variables(folder)
    assert (
        made["prefect-server.env"]["PREFECT_SERVER_API_AUTH_STRING"]
        == made["prefect-client.env"]["PREFECT_API_AUTH_STRING"]
    )
    assert made["prefect-server.env"]["PREFECT_SERVER_DATABASE_PASSWORD"] == made["postgres.env"]["POSTGRES_PASSWORD"]
    assert list(made["objects-root.env"].values()) == list(made["objects.env"].values())
    values = [value for found in made.values() for value in found.values()]
    assert all(re.fullmatch(r"(r3l:)?[0-9a-f]{48}", value) for value in values)
    assert len(set(values)) == 6  # database, prefect, access, secret, audit, engine
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_keys_that_are_there_are_kept(folder):
    before = variables(folder)
    again = subprocess.run(["bash", str(INFRA / "keys.sh"), str(folder)], check=True, capture_output=True, text=True)
    assert "nothing is made" in again.stdout
    assert variables(folder) == before


def test_the_images_are_pinned_and_run_as_another_user_than_root():
    text = (INFRA / "Dockerfile").read_text()
    assert dockerfile_findings(text) == []
    assert dockerfile_findings(text.replace("python:3.11.14-slim-bookworm AS runtime", "python:3 AS runtime")) == [
        "runtime: base image python:3 has no exact version"
    ]
    assert dockerfile_findings(text.replace("USER 10001:10001\nENTRYPOINT", "ENTRYPOINT")) == ["engine: runs as root"]
    assert dockerfile_findings(text + "ENV API_KEY=abc\n") == ["objects: ENV API_KEY looks like a secret"]


def test_what_is_built_is_in_the_dockerfile_and_is_copied_from_what_is_there(compose):
    text = (INFRA / "Dockerfile").read_text()
    targets = set(re.findall(r"AS (\S+)", text))
    for service in compose["services"].values():
        if build := service.get("build"):
            assert (INFRA / build["context"] / build["dockerfile"]) == INFRA / "../infra/Dockerfile"
            assert build["target"] in targets
            assert service["image"] == f"r3l-{build['target']}:0.1.0"
    for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.M):
        assert all((ROOT / name).exists() for name in line.split()), line
    assert "torch" not in text.split("AS build-flows")[1].split("FROM")[0].lower()


def test_the_trainer_s_torch_is_a_gpu_s():
    """A build sees no GPU: what is found out there is the CPU's."""
    [backend] = re.findall(r"ARG TORCH_BACKEND=(\S+)", (INFRA / "Dockerfile").read_text())
    assert re.fullmatch(r"cu\d+", backend)


def test_keys_never_enter_an_image_or_the_repository():
    ignored = (INFRA / "Dockerfile.dockerignore").read_text().splitlines()
    assert {"infra/secrets", "infra/.env"} <= set(ignored)
    for path in ("infra/secrets/engine.env", "infra/.env", "infra/k8s/base/secrets/engine.env"):
        assert subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT).returncode == 0, path


def test_the_gateway_ends_tls_and_passes_on_to_servers_that_ask_for_a_key(compose):
    text = (INFRA / "gateway.conf").read_text()
    passed = dict(re.findall(r"listen (\d+) ssl; location / { proxy_pass http://([\w:]+); }", text))
    assert {address.split(":")[0] for address in passed.values()} <= set(ASKS_FOR)
    assert [f"{port}:{port}" for port in passed] == compose["services"]["gateway"]["ports"]
    assert set(re.findall(r"/run/secrets/(\S+);", text)) == set(compose["secrets"])
    unencrypted = [line for line in re.findall(r"listen ([^;]+);", text) if "ssl" not in line]
    assert unencrypted == ["127.0.0.1:8080"]
