"""What infra/ and prefect.yaml say is what Prefect and the flows understand."""

import importlib
from pathlib import Path

import yaml
from prefect.events.schemas.automations import AutomationCore

from flows.prefect_settings import DEFAULTS
from flows.server import PROGRESS

GIVEN = {  # what the deployments without a default are given by whoever runs them
    "replay": {"run": "demo", "iteration": 0},
    "update": {"store": "s3://bucket", "job": "demo/iteration=00000/elsewhere/update.json"},
    "shard": {"config": {}, "iteration": 0, "shard": 3, "key": "k", "policies": {}},
}


def test_every_deployment_has_a_flow_and_parameters_that_it_takes():
    for deployment in yaml.safe_load(Path("prefect.yaml").read_text())["deployments"]:
        path, name = deployment["entrypoint"].split(":")
        flow = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
        assert flow.name in {"r3l", f"r3l-{deployment['name']}"}
        flow.validate_parameters(deployment.get("parameters") or GIVEN.get(name, {}))


def test_silent_runs_crash_and_hung_runs_are_cancelled():
    found = yaml.safe_load(Path("infra/prefect-automations.yaml").read_text())["automations"]
    crashed, hung = map(AutomationCore.model_validate, found)
    beats = {
        one["work_pool"]["job_variables"]["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]
        for one in yaml.safe_load(Path("prefect.yaml").read_text())["deployments"]
    }
    assert crashed.trigger.within.total_seconds() == 120
    assert beats == {"30"}  # its own default, every three minutes, would have live runs marked as crashed
    assert [action.type for action in crashed.actions] == ["change-flow-run-state"]
    assert hung.trigger.after == {PROGRESS}
    assert PROGRESS in hung.trigger.expect
    assert [action.type for action in hung.actions] == ["cancel-flow-run"]


def test_the_example_of_a_message_is_an_automation_of_runs_that_deployments_tag():
    text = Path("infra/prefect-notify.yaml").read_text()
    (told,) = yaml.safe_load(
        text.replace("block_document_id: BLOCK", "block_document_id: " + "0" * 8 + "-0000-4000-8000-" + "0" * 12)
    )["automations"]
    automation = AutomationCore.model_validate(told)
    assert [action.type for action in automation.actions] == ["send-notification"]
    tag = told["trigger"]["match_related"]["prefect.resource.id"].removeprefix("prefect.tag.")
    deployments = {one["name"]: one for one in yaml.safe_load(Path("prefect.yaml").read_text())["deployments"]}
    assert all(tag in deployments[name]["tags"] for name in ("train", "iterate"))


def test_a_flow_run_s_process_shows_the_lines_of_the_project_s_own_log():
    """It imports Prefect before the flows can set anything."""
    for one in yaml.safe_load(Path("prefect.yaml").read_text())["deployments"]:
        given = one["work_pool"]["job_variables"]["env"]
        for name in ("PREFECT_LOGGING_EXTRA_LOGGERS", "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW"):
            assert given[name] == DEFAULTS[name]
