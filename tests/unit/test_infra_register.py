"""What infra/prefect.sh asks of Prefect, on one machine and on a cluster: a stand-in writes down the calls."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prefect.workers.process import ProcessWorker

INFRA = Path(__file__).parents[2] / "infra"
NAMES = [one["name"] for one in yaml.safe_load((INFRA.parent / "prefect.yaml").read_text())["deployments"]]
STAND_IN = """#!/bin/sh
case "$*" in *get-default-base-job-template*) echo "$PROCESS_TEMPLATE"; exit ;; esac
echo "$@" >> "$CALLS"
while [ $# -gt 0 ]; do
  if [ "$1" = --base-job-template ]; then cat "$2" > "$CALLS.$(grep -c . "$CALLS")"; fi
  shift
done
"""


PROCESS_TEMPLATE = ProcessWorker.get_default_base_job_template()


@pytest.fixture
def register(tmp_path):
    """Runs the script with more variables; gives back its calls of Prefect and the templates that it handed over."""
    stand_in = tmp_path / "bin" / "prefect"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    (stand_in.parent / "python").symlink_to(sys.executable)
    calls = tmp_path / "calls"

    def run(**variables: str) -> tuple[list[str], list[dict]]:
        environment = {
            "PATH": os.environ["PATH"],
            "VENV": str(tmp_path),
            "CALLS": str(calls),
            "PREFECT_API_URL": "http://prefect/api",
            "PROCESS_TEMPLATE": json.dumps(PROCESS_TEMPLATE),
        }
        subprocess.run(
            ["bash", str(INFRA / "prefect.sh")], env=environment | variables, check=True, capture_output=True
        )
        made = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("calls.*"))]
        return [line.removeprefix("--no-prompt ") for line in calls.read_text().splitlines()], made

    return run


def test_one_machine_has_one_pool_of_processes(register):
    calls, templates = register()
    assert [call.partition(" --base")[0] for call in calls if call.startswith(("work-pool", "deploy"))] == [
        "work-pool create r3l --type process",
        f"deploy {' '.join(f'--name {name}' for name in NAMES)}",
    ]
    [template] = templates
    command = template["variables"]["properties"]["command"]
    python, *words = shlex.split(command["default"])
    assert Path(python).is_absolute()
    assert words == ["-P", "-m", "flows.serving.flow_run"]
    command["default"] = None
    assert template == PROCESS_TEMPLATE, "all else is as Prefect has it"


def test_the_start_of_flow_runs_can_be_left_to_prefect(register):
    calls, templates = register(R3L_FORKS="0")
    assert calls[0] == "work-pool create r3l --type process --overwrite"
    assert templates == []


def test_a_cluster_has_three_pools_and_its_own_registry(register):
    calls, templates = register(
        R3L_POOL_TEMPLATE="infra/k8s/base/templates/flow-run.json",
        R3L_UPDATE_POOL="r3l-update",
        R3L_UPDATE_POOL_TEMPLATE="infra/k8s/base/templates/update.json",
        R3L_SHARD_POOL="r3l-shards",
        R3L_REGISTRY="registry.example.org/",
        R3L_UPDATE_VARIABLES='{"nodes": 2}',
    )
    made = [call.partition(" --base-job-template")[0] for call in calls if call.startswith("work-pool")]
    assert made == [
        "work-pool create r3l --type kubernetes",
        "work-pool create r3l-update --type kubernetes",
        "work-pool create r3l-shards --type process --overwrite",
    ]
    assert [call for call in calls if call.startswith("deploy")] == [
        f"deploy {' '.join(f'--name {name}' for name in NAMES if name not in {'update', 'shard'})}",
        'deploy --name update --pool r3l-update --job-variable {"nodes": 2}',
        "deploy --name shard --pool r3l-shards",
    ]
    images = {one["variables"]["properties"]["image"]["default"] for one in templates}
    assert images == {"registry.example.org/r3l-flows:0.1.0", "registry.example.org/r3l-trainer:0.1.0"}
    assert {one["job_configuration"]["name"] for one in templates} == {"r3l-flow-run", "r3l-update"}, (
        "names are left as they are"
    )
