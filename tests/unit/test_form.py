"""The forms of the Prefect UI: few choices, presets by name, everything else in another tab; what they come to."""

from __future__ import annotations

import jsonschema
import pytest

from flows.evaluate import asked_of
from flows.iterate import iterate
from flows.replay import replay
from r3l.config import Config, compose
from r3l.config.compose import preset_names
from r3l.config.form import Form
from r3l.errors import ConfigError
from r3l.evaluation.form import OWN, EvaluationForm
from r3l.pipeline.replay import ORDER
from r3l.pipeline.saved_config import save_config
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

FIRST = ["run", "method", "environment", "policy", "rollout"]


def test_an_untouched_form_is_the_command_without_options():
    assert Form().resolved() == compose()


@pytest.mark.parametrize("method", preset_names("methods"))
def test_a_preset_is_chosen_by_its_name(method):
    asked = Form(method=method, environment="webshop", policy="qwen2.5-1.5b", machine="two_nodes", run="x", seed=3)
    expected = compose(
        policy="qwen2.5-1.5b", environment="webshop", method=method, machine="two_nodes", run="x", seed=3
    )
    assert asked.resolved() == expected


def test_settings_of_a_tab_go_over_the_presets_and_leave_the_rest():
    asked = Form(rollout={"tasks": 3}, environment={"kind": "household", "level": "easy"}, method="released")
    found = asked.resolved()
    assert (found.rollout.tasks, found.environment.level) == (3, "easy")
    below = compose(method="released", environment="household", assignments=["environment.level=easy"])
    assert found.method == below.method  # what the preset says `when` the environment is the household


def test_all_settings_are_an_answer():
    config = compose(environment="math", method="grpo", run="x", assignments=["training.sync_interval=3"])
    assert Form.model_validate(config).resolved() == config
    assert iterate.validate_parameters({"config": config})["config"].resolved() == config
    assert asked_of(EvaluationForm.model_validate(config)) == config


def test_what_can_not_be_is_named():
    with pytest.raises(ConfigError, match=r"rollout.group_size: .*multiple of 2 \(got 7\)"):
        Form(rollout={"group_size": 7}).resolved()
    with pytest.raises(ConfigError, match="unknown preset 'papr' in methods"):
        Form(method="papr").resolved()


def test_the_form_is_ordered_and_folded():
    schema = Form.model_json_schema()
    fields = schema["properties"]
    assert list(fields)[:5] == FIRST
    assert fields["method"]["anyOf"][0]["enum"] == preset_names("methods")
    tabs = [
        part.get("title") or schema["$defs"][part["$ref"].split("/")[-1]]["title"] for part in fields["method"]["anyOf"]
    ]
    assert tabs[:3] == ["Preset", "R3L", "RAFT"]
    folded = [name for name, field in fields.items() if field.get("default") == {}]
    assert folded == ["rollout", "training", "evaluation", "engine", "placement", "tracking", "store"]
    assert all(not field["anyOf"][0]["properties"] for name, field in fields.items() if name in folded)
    assert schema["$defs"]["R3LSettings"]["properties"]["kl_coefficient"]["title"] == "KL coefficient"
    assert fields["training"]["anyOf"][1]["properties"]["timeout_s"]["title"] == "Timeout (seconds)"


def test_a_wrong_answer_is_refused_by_the_schema():
    schema = Form.model_json_schema()
    for answers in ({}, {"method": "grpo"}, {"rollout": {"tasks": 1}}, Config().model_dump(mode="json")):
        jsonschema.validate(answers, schema)
    for answers in ({"method": "papr"}, {"rollout": {"group_size": 7}}, {"rollout": {"task": 1}}, {"machine": "mine"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(answers, schema)


@pytest.fixture
def root(tmp_path) -> str:
    """A run `long` on household games."""
    store = Store.open(str(tmp_path))
    commit_iteration(store, run="long")
    trained = compose(environment="household", method="grpo", run="long", seed=7, assignments=["iteration=0"])
    save_config(store, trained, 0)
    return str(tmp_path)


def test_an_evaluation_is_posed_as_the_run_was_trained(root):
    found = asked_of(EvaluationForm(run="long", store={"root": root}, evaluation={"benchmark": OWN, "tasks": 5}))
    assert (found.environment.kind, found.method.kind, found.seed, found.iteration) == ("household", "grpo", 7, None)
    assert (found.evaluation.benchmark, found.evaluation.tasks, found.store.root) == ("", 5, root)
    named = asked_of(EvaluationForm(run="long", store={"root": root}, environment="webshop", seed=1))
    assert (named.environment.kind, named.method.kind, named.seed) == ("webshop", "r3l", 1)
    assert asked_of(EvaluationForm(run="none", store={"root": root})).environment == compose().environment


def test_the_form_of_an_evaluation_is_short():
    fields = EvaluationForm.model_json_schema()["properties"]
    assert list(fields)[:3] == ["run", "iteration", "evaluation"]
    assert not {"method", "rollout", "training", "placement"} & set(fields)
    (posing,) = fields["evaluation"]["anyOf"]
    assert "description" not in posing
    assert {OWN, "gsm8k"} < set(posing["properties"]["benchmark"]["enum"])


def test_the_stages_of_a_replay_are_a_choice():
    schema = replay.parameters.model_dump()
    for name, default in (("from_stage", "credit"), ("to_stage", "updates")):
        assert schema["properties"][name]["enum"] == list(ORDER)
        assert schema["properties"][name]["default"] == default
    with pytest.raises(jsonschema.ValidationError, match="'credits' is not one of"):
        jsonschema.validate({"run": "demo", "iteration": 0, "from_stage": "credits"}, schema)
