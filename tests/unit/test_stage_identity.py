"""What belongs to a stage's identity: every setting that its field does not leave out, every prompt that is shown, the
code's version."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from pydantic import Field, ValidationError

from r3l import plugins
from r3l.config import Config, compose
from r3l.config.compose import PATH
from r3l.config.engines import ENGINE_KINDS
from r3l.config.environments import ENVIRONMENT_KINDS
from r3l.config.methods import METHOD_KINDS
from r3l.config.section import Section, settings_of
from r3l.environments import kinds, replies
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.kinds import world_class
from r3l.exploration import prompting
from r3l.pipeline.policies import Policies
from r3l.pipeline.stages import identity
from r3l.pipeline.stages.identity import CODE_VERSIONS, stage_settings, work_identity
from r3l.pipeline.stages.run_stage import policies_of
from r3l.stages import STAGES
from r3l.store.digests import fingerprint

SAMPLED = "base reflections retries continuations"
# Which stages' fingerprints a changed setting changes, by section; the settings that differ from their section below.
OF_SECTION = {
    "seed": " ".join(STAGES), "environment": f"tasks oracle_pivots evaluations {SAMPLED}",
    "engine": f"evaluations {SAMPLED}", "policy": f"updates evaluations {SAMPLED}", "rollout": SAMPLED,
    "method": "credit training_rows", "training": "updates", "evaluation": "evaluations", "placement": "",
    "tracking": "", "store": "", "run": "", "change": "", "branch": "", "iteration": "",
}  # fmt: skip
PLANNED = "credit training_rows reflections retries"


def each(section: str, names: str, stages: str) -> dict[str, str]:
    return {f"{section}.{name}": stages for name in names.split()}


OF_SETTING = {
    **each("environment", "workers step_timeout_s episode_s data_root memory_mb", ""),
    **each("engine", "canary_tolerance max_batch cache_tokens threads batch_invariant device urls health_s", ""),
    **each("engine", "puller_port api_key_env timeout_s retries adopt connections memory_share sleep", ""),
    **each("engine", "gpus start_s restarts", ""),
    **each("policy", "name path", ""),
    **each("policy", "adapter lora_rank lora_alpha lora_targets", "updates"),
    **each("rollout", "tasks", "tasks"),
    **each("rollout", "shards_in_flight max_failed_share", ""),
    **each("rollout", "temperature", "base retries continuations"),
    **each(
        "rollout", "reflection_temperature reflection_tokens structured_reflections reflection_context", "reflections"
    ),
    **each("method", "retry_when retry_reward_below retry_from retries_per_base invalid_reflection", PLANNED),
    **each("method", "guidance_position diverged group_fill pivot guidance hint_level", PLANNED),
    **each("method", "meta_objective meta_gain_weight meta_valid_weight meta_invalid_weight", "training_rows"),
    **each("method", "meta_success_weight sampler_ratio sampler_low sampler_high teacher_weighs", "training_rows"),
    **each("method", "taught_by train_reflections", f"{PLANNED} base"),
    **each("method", "meta_memory meta_replay", "replay"),
    **each("method", "teacher teacher_model teacher_every", ""),  # by what the teacher is: see test_guidance.py
    **each("method", "memory_iterations", ""),  # by what is remembered: see test_taught.py
    **each("method", "continuations turns_sampled", "credit training_rows continuations"),
    **each("method", "reflect", f"{PLANNED} base"),  # without reflections all of the budget are bases
    **each("training", "micro_batch_tokens logits_chunk checkpoint_segments device processes timeout_s", ""),
    **each("training", "overlap", "base"),
    **each("training", "replay_decay replay_limit replay_share", "replay"),
    **each("evaluation", "every", ""),
}


OTHER_CLASS = "tests.unit.test_tool_world:Generous"
KINDS = [
    (several.section, kind) for several in (METHOD_KINDS, ENVIRONMENT_KINDS, ENGINE_KINDS) for kind in several.names()
]


@pytest.fixture(autouse=True)
def other_class_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.NAMED, OTHER_CLASS)


def others(value: Any, annotation: Any) -> Iterator[Any]:
    """Values that a setting might have instead, some of them out of bounds."""
    yield from (one for one in get_args(annotation) if isinstance(one, str))
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 2, value * 2, value / 2, value - 1, value + 0.5, value - 0.5)
    elif isinstance(value, str):
        yield from (OTHER_CLASS,) if PATH.fullmatch(value) else (value + "x", value + "0")
    elif value is None:
        yield from (True, 2)
    elif isinstance(value, dict):
        yield {**value, "other": 1}
    else:
        yield ["x"]
        yield ["mlflow"]


# Settings that stand only beside others.
GOES_WITH = {"teacher_every": {"guidance": "teacher", "teacher": "start"}}


def beside(config: Config, section: str, name: str) -> Config:
    """The same, with the settings beside which one stands."""
    if name not in GOES_WITH:
        return config
    whole = config.model_dump(mode="json")
    whole[section] |= GOES_WITH[name]
    return Config.model_validate(whole)


def changed(config: Config, section: str, name: str) -> Config:
    """The same with one setting changed."""
    same, whole = config.model_dump(mode="json"), config.model_dump(mode="json")
    part, owner = (whole[section], getattr(config, section)) if section else (whole, config)
    before = part[name]
    for other in others(before, type(owner).model_fields[name].annotation):
        part[name] = other
        try:
            found = Config.model_validate(whole)
        except ValidationError:
            continue
        if found.model_dump(mode="json") != same:
            return found
    raise AssertionError(f"{section}.{name}: found no other value than {before!r}")


def fingerprints(config: Config) -> dict[str, str]:
    return {stage: fingerprint(stage, settings, []) for stage, settings in work_identity(config).items()}


def differing(before: dict[str, str], other: Config) -> set[str]:
    """The stages whose fingerprints are not those of before."""
    after = fingerprints(other)
    return {stage for stage in STAGES if before[stage] != after[stage]}


def wrong(config: Config, section: str) -> dict[str, set[str]]:
    """The settings of a section that change other stages than they should, with those that they change."""
    part = getattr(config, section)
    names = (
        [(section, name) for name in type(part).model_fields if name != "kind"]
        if isinstance(part, Section)
        else [("", section)]
    )
    assert names
    plain, wrong_stages = fingerprints(config), {}
    for owner, name in names:
        start, setting = beside(config, owner, name), f"{owner}.{name}".strip(".")
        stages = differing(plain if start is config else fingerprints(start), changed(start, owner, name))
        if stages != set(OF_SETTING.get(setting, OF_SECTION[section]).split()):
            wrong_stages[setting] = stages
    return wrong_stages


@pytest.mark.parametrize(("section", "kind"), KINDS + [(name, "") for name in OF_SECTION if name not in dict(KINDS)])
def test_every_setting_changes_the_stages_that_it_belongs_to_and_no_other(section, kind, monkeypatch):
    described = {"system_prompt": "", "tools": [], "rows": {"train": [], "heldout": []}}
    monkeypatch.setattr("r3l.environments.verifiers.world.describe", lambda settings: described)  # of no package
    room = {"overlong_limit": 8} if kind == "dapo" else {}  # below which its ramp can't be
    assert wrong(Config.model_validate({section: {"kind": kind, **room}} if kind else {}), section) == {}


def test_no_section_is_left_out() -> None:
    assert set(OF_SECTION) == set(Config.model_fields)


@pytest.mark.parametrize(("section", "kind"), KINDS)
def test_another_kind_changes_the_identity_of_its_stages(section: str, kind: str) -> None:
    config, default = Config.model_validate({section: {"kind": kind}}), Config()
    stages = set(OF_SECTION[section].split()) if kind != getattr(default, section).kind else set()
    assert differing(fingerprints(default), config) >= stages


def test_a_new_setting_is_in_the_identity_unless_its_field_says_otherwise() -> None:
    class Grown(type(Config().training)):  # type: ignore[misc]
        novelty: int = Field(0)

    grown = Config().model_copy(update={"training": Grown()})
    assert settings_of(grown, "updates")["training"]["novelty"] == 0
    assert "novelty" not in settings_of(grown, "replay")["training"]


def test_what_the_settings_name_are_stages() -> None:
    sections = [type(part) for name in Config.model_fields if isinstance(part := getattr(Config(), name), Section)]
    extras = [field.json_schema_extra for section in (*sections, Config) for field in section.model_fields.values()]
    named = {stage for extra in extras if isinstance(extra, dict) for stage in extra["identity"]}  # type: ignore[union-attr]
    assert named == set(STAGES) - {"oracle_pivots", "distilled", "evaluations"}
    assert {stage for section in sections for stage in section.IDENTITY_OF or ()} <= set(STAGES)


def edited(folder: Path, into: Path, name: str) -> Path:
    """A copy of a folder of prompts in which one is edited."""
    into.mkdir()
    for path in folder.glob("*.txt"):
        (into / path.name).write_text(path.read_text() + ("Be brief." if path.name == name else ""))
    return into


def test_an_edited_prompt_of_an_environment_changes_what_shows_it(tmp_path, monkeypatch):
    config = compose(environment="household")
    before = fingerprints(config)
    monkeypatch.setattr(replies, "PROMPTS", edited(replies.PROMPTS, tmp_path / "prompts", "household.txt"))
    assert differing(before, config) == {"base", "retries", "continuations", "evaluations"}


@pytest.mark.parametrize(("prompt", "method", "context", "stages"), [
    ("reflection.txt", "paper", "transcript", {"reflections"}),
    ("reflection.txt", "paper", "continued", {"reflections"}),
    ("continued.txt", "paper", "transcript", set()),
    ("continued.txt", "paper", "continued", {"reflections"}),
    ("guidance.txt", "paper", "transcript", {"retries"}),
    ("critique.txt", "paper", "transcript", set()),
    ("critique.txt", "critique_grpo", "transcript", {"reflections"}),
])  # fmt: skip
def test_so_does_one_of_the_exploration(prompt, method, context, stages, tmp_path, monkeypatch):
    config = compose(method=method, assignments=[f"rollout.reflection_context={context}"])
    before = fingerprints(config)
    monkeypatch.setattr(prompting, "PROMPTS", edited(prompting.PROMPTS, tmp_path / "prompts", prompt))
    prompting.prompt.cache_clear()
    changed_stages = differing(before, config)
    prompting.prompt.cache_clear()
    assert changed_stages == stages


def test_the_prompts_and_remarks_of_an_environment_from_outside_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(HouseholdWorld):
        said = "You are a guest."

        def system_prompt(self) -> str:
            return self.said

    monkeypatch.setattr(kinds, "world_class", lambda kind: Own)
    seen = [fingerprints(config := compose(environment="household"))["base"]]
    monkeypatch.setattr(Own, "said", "You are the cook.")
    seen.append(fingerprints(config)["base"])
    monkeypatch.setattr(Own, "remarks", ("Well done.",), raising=False)
    seen.append(fingerprints(config)["base"])
    assert len(set(seen)) == 3


@pytest.mark.parametrize("stage", STAGES)
def test_another_version_of_the_code_is_another_stage(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprints(Config())
    monkeypatch.setitem(CODE_VERSIONS, stage, CODE_VERSIONS[stage] + 1)
    assert differing(before, Config()) == {stage}


def test_methods_with_the_same_plan_share_the_sampled_stages() -> None:
    """A comparison compares methods and nothing else."""
    grpo, raft, paper = (compose(method=name) for name in ("grpo", "raft", "paper"))
    assert stage_settings(grpo, "base") == stage_settings(raft, "base")
    assert stage_settings(paper, "base") != stage_settings(grpo, "base")  # half of the budget
    without = compose(method="r3l_without_credit")
    for stage in ("base", "reflections", "retries"):
        assert stage_settings(paper, stage) == stage_settings(without, stage)
    assert stage_settings(paper, "credit") != stage_settings(without, "credit")


def test_only_the_bases_of_a_plan_belong_to_the_base_stage() -> None:
    """Else a change of the retries would sample the bases anew."""
    sampled = identity.plan(Config().method, 8)
    assert identity.plan_of_stage(sampled, "base") == {"bases": 4}


def test_what_finds_nouns_and_which_games_are_there_belong_to_the_tasks(monkeypatch, tmp_path):
    shop = compose(environment="webshop")
    monkeypatch.setattr("r3l.environments.webshop.nouns.installed_model", lambda: "")
    words = stage_settings(shop, "tasks")
    monkeypatch.setattr("r3l.environments.webshop.nouns.installed_model", lambda: "en_core_web_sm 3.8.0")
    assert words["data"] == "synthetic-0, nouns by words"
    assert stage_settings(shop, "tasks")["data"] == "synthetic-0, nouns by en_core_web_sm 3.8.0"
    part = compose(
        assignments=["environment.games=downloaded", "environment.partial=true", f"environment.data_root={tmp_path}"]
    )
    assert stage_settings(part, "evaluations")["data"] == "json_2.1.1, 0 of 140 games"


def test_the_rules_of_built_in_worlds_are_at_the_versions_that_stored_stages_have() -> None:
    versions = {kind: getattr(world_class(kind), "version", 1) for kind in ("household", "alfworld", "math", "webshop")}
    assert versions == {"household": 1, "alfworld": 1, "math": 4, "webshop": 2}


def test_the_state_of_the_optimiser_is_in_the_identity_of_an_update_alone():
    digests = SimpleNamespace(digest="p0")
    policies = Policies(digests, digests, digests, None, None)
    one, other = (SimpleNamespace(policies=replace(policies, optimiser=digest)) for digest in ("a", "b"))
    assert policies_of(one, "updates") != policies_of(other, "updates")
    assert policies_of(one, "base") == policies_of(other, "base")
