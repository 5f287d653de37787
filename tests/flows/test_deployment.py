"""`prefect server start`, a worker, `prefect deploy`, a run of the deployment r3l/iterate: for real, on loopback."""

import json

import pytest

from tests.flows.small import small_config
from tests.support.prefect_world import PREFECT, served, wait

RUN_S = 240
REGISTER = [[PREFECT, "work-pool", "create", "r3l", "--type", "process"], [PREFECT, "--no-prompt", "deploy", "--all"]]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_deployment_run_is_an_iteration_and_a_wrong_value_is_refused(tmp_path):
    with served(tmp_path, REGISTER) as server:
        found = server.answer("GET", "/deployments/name/r3l/iterate").json()
        form = found["parameter_openapi_schema"]["definitions"]["Form"]["properties"]
        fields = form["rollout"]["anyOf"][1]["properties"]
        assert "even, 2 to 256" in fields["group_size"]["description"]

        config = json.loads(small_config(tmp_path / "store").model_dump_json())
        wrong = config | {"rollout": config["rollout"] | {"group_size": 7}}
        address = f"/deployments/{found['id']}/create_flow_run"  # as `prefect deployment run` asks it
        assert server.answer("POST", address, {"parameters": {"config": wrong}}).status_code == 409

        server.answer("POST", address, {"parameters": {"config": config}}).raise_for_status()
        state = wait("the flow run", RUN_S, server.ended)
        assert state["type"] == "COMPLETED", state
        keys = {one["key"] for one in server.asked("artifacts")}
        assert {"r3l-small-iteration", "r3l-small-figures"} <= keys
        assert (tmp_path / "store" / "small" / "iteration=00000" / "updates" / "stage.json").is_file()
