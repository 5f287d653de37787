"""The forms of the Prefect UI: few choices, presets by name, everything else in another tab; what they come to."""

import re
from typing import Any

import jsonschema
import pytest
from prefect.utilities.schema_tools.validation import ValidationError, validate

from flows.iterate import iterate
from flows.replay import replay
from r3l.config import Config, compose
from r3l.config.compose import compose_asked, preset_names
from r3l.config.form import AS_THE_RUN, Form
from r3l.config.methods import METHOD_KINDS
from r3l.errors import ConfigError
from r3l.evaluation.form import OWN, EvaluationForm
from r3l.pipeline.replay import ORDER
from r3l.pipeline.settings.continuing import compose_for_run, save_config
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

FIRST = ["run", "method", "environment", "policy", "rollout"]


def test_an_untouched_form_is_the_command_without_options():
    assert compose_asked(Form().asked()) == compose()


@pytest.mark.parametrize("method", preset_names("methods"))
def test_a_preset_is_chosen_by_its_name(method):
    asked = Form(method=method, environment="webshop", policy="qwen2.5-1.5b", machine="two_nodes", run="x", seed=3)
    expected = compose(
        policy="qwen2.5-1.5b", environment="webshop", method=method, machine="two_nodes", run="x", seed=3
    )
    assert compose_asked(asked.asked()) == expected


def test_settings_of_a_tab_go_over_the_presets_and_leave_the_rest():
    asked = Form(rollout={"tasks": 3}, environment={"kind": "household", "level": "easy"}, method="released")
    found = compose_asked(asked.asked())
    assert (found.rollout.tasks, found.environment.level) == (3, "easy")
    below = compose(method="released", environment="household", assignments=["environment.level=easy"])
    assert found.method == below.method  # what the preset says `when` the environment is the household


def test_all_settings_are_an_answer():
    config = compose(environment="math", method="grpo", run="x", assignments=["training.sync_interval=3"])
    assert compose_asked(Form.model_validate(config).asked()) == config
    assert compose_asked(iterate.validate_parameters({"config": config})["config"].asked()) == config
    assert compose_for_run(EvaluationForm.model_validate(config).asked(), training=False) == config


def test_what_can_not_be_is_named():
    with pytest.raises(ConfigError, match=r"rollout.group_size: .*multiple of 2 \(got 7\)"):
        compose_asked(Form(rollout={"group_size": 7}).asked())
    with pytest.raises(ConfigError, match="unknown preset 'papr' in methods"):
        compose_asked(Form(method="papr").asked())


def test_the_form_is_ordered_and_folded():
    schema = Form.model_json_schema()
    fields = schema["properties"]
    assert list(fields)[:5] == FIRST
    assert fields["method"]["anyOf"][1]["enum"] == preset_names("methods")
    assert [tab["title"] for tab in fields["method"]["anyOf"]] == [AS_THE_RUN, "Preset", "Set here"]
    folded = [name for name, field in fields.items() if field.get("default") == {}]
    assert folded == [
        "method", "environment", "policy", "rollout", "training", "evaluation", "engine", "placement", "tracking",
        "store",
    ]  # fmt: skip
    assert all(not field["anyOf"][0]["properties"] for name, field in fields.items() if name in folded)
    assert fields["method"]["anyOf"][2]["properties"]["kl_coefficient"]["title"] == "KL coefficient"
    assert fields["training"]["anyOf"][1]["properties"]["timeout_s"]["title"] == "Timeout (seconds)"


@pytest.mark.parametrize("form", [Form, EvaluationForm])
def test_no_row_of_tabs_is_wider_than_a_telephone(form):
    def rows(schema):
        parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
        found = [schema["anyOf"]] if isinstance(schema, dict) and "anyOf" in schema else []
        return found + [row for part in parts for row in rows(part)]

    for row in rows(form.model_json_schema()):
        assert sum(len(tab.get("title", tab.get("type", ""))) for tab in row) <= 40, row


def test_the_kind_is_a_choice_and_each_setting_says_who_has_it():
    *_, here = Form.model_json_schema()["properties"]["method"]["anyOf"]
    settings = here["properties"]
    assert settings["kind"]["enum"] == METHOD_KINDS.names()
    assert [name for name, field in settings.items() if "default" in field] == ["kind"]  # each default would be sent
    assert re.fullmatch(r"Only opmd\. The loss is divided by .* Default: 1\.0\.", settings["tau"]["description"])
    assert settings["scale"]["description"].endswith("Default: std; opmd, rloo, vineppo, rltf_sd: none.")
    assert settings["retry_when"]["enum"] == ["not_success", "reward_below", "group_failed", "always", "never"]
    assert (settings["discount"]["maximum"], "minimum" in settings["discount"]) == (1, False)  # of one kind alone


def test_a_section_without_a_kind_has_the_first_that_is_shown():
    asked = Form(method={"alpha": 5}, environment={"max_turns": 5}, engine={"threads": 2}, policy={"dtype": "float32"})
    sections = Form.model_json_schema()["properties"]
    for section in ("method", "environment", "engine"):
        choice = sections[section]["anyOf"][-1]["properties"]["kind"]
        assert getattr(compose_asked(asked.asked()), section).kind == choice["default"]
    machine = compose_asked(Form(engine={"start_s": 8}, machine="one_gpu").asked())
    assert machine.engine.kind == "vllm_server"


def test_a_setting_of_another_kind_is_refused_by_its_name():
    with pytest.raises(ConfigError, match=r"method.tau: unknown setting; .*\(kind grpo\)"):
        compose_asked(Form(method={"kind": "grpo", "tau": 2.0}).asked())


def test_a_wrong_answer_is_refused_by_the_schema():
    schema = Form.model_json_schema()
    for answers in ({}, {"method": "grpo"}, {"rollout": {"tasks": 1}}, Config().model_dump(mode="json")):
        jsonschema.validate(answers, schema)
    for answers in ({"method": "papr"}, {"rollout": {"group_size": 7}}, {"rollout": {"task": 1}}, {"machine": "mine"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(answers, schema)


@pytest.mark.parametrize(("answers", "name"), [
    ({"rollout": {"group_size": 7}}, "rollout.group_size"),
    ({"method": {"kind": "grpo", "clip_low": 3}}, "method.clip_low"),
    ({"method": "papr"}, "method"),
    ({"rollout": {"task": 1}}, "rollout"),
    ({"runn": "x"}, "'runn' was unexpected"),
])  # fmt: skip
def test_prefect_names_the_parameter_that_is_wrong(answers, name):
    schema = iterate.parameters.model_dump()
    with pytest.raises(ValidationError, match=re.escape(name)):
        validate({"config": answers}, schema, raise_on_error=True)


@pytest.fixture
def root(tmp_path) -> str:
    """A run `long` on household games."""
    store = Store.open(str(tmp_path))
    commit_iteration(store, run="long")
    trained = compose(environment="household", method="grpo", run="long", seed=7, assignments=["iteration=0"])
    save_config(store, trained, 0)
    return str(tmp_path)


def test_an_evaluation_is_posed_as_the_run_was_trained(root):
    def posed(**sent: Any) -> Config:
        return compose_for_run(EvaluationForm(store={"root": root}, **sent).asked(), training=False)

    found = posed(run="long", evaluation={"benchmark": OWN, "tasks": 5})
    assert (found.environment.kind, found.method.kind, found.seed, found.iteration) == ("household", "grpo", 7, None)
    assert (found.evaluation.benchmark, found.evaluation.tasks, found.store.root) == ("", 5, root)
    named = posed(run="long", environment="webshop", seed=1)
    assert (named.environment.kind, named.method.kind, named.seed) == ("webshop", "grpo", 1)
    assert posed(run="none").environment == compose().environment


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
