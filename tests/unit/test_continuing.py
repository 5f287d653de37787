"""A run that is there goes on with its own settings, whoever starts it; what would make it another run is refused by
name, or is a row of `events`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import r3l
from flows.cli.settings import settings
from r3l.config import Config, compose
from r3l.config.compose import Asked
from r3l.config.form import Form
from r3l.engines.base import PolicySnapshot
from r3l.errors import ConfigError
from r3l.pipeline.policies import refuse_other_start
from r3l.pipeline.settings.continuing import change_events, check_changes, compose_for_run, load_config, save_config
from r3l.stages import STAGES
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

OWN = ["environment.level=easy", "rollout.tasks=3", "method.loss_tokens=50", "seed=7", "policy.context_tokens=2048"]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A run `long` with one finished iteration of GRPO on household games."""
    store = Store.open(str(tmp_path / "store"))
    commit_iteration(store, run="long")
    trained = compose(policy="household", environment="household", method="grpo", run="long", assignments=OWN)
    save_config(store, trained, 0)
    return store.root


def started_by(way: str, root: str, *given: str, **named: str) -> Config:
    """The settings of an iteration of `long` that names nothing but what is given."""
    if way == "command":
        options = {"preset": "", "method": "", "policy": "", "environment": "", "engine": ""} | named
        return settings("long", **options, assignments=[f"store.root={root}", *given])
    if way == "python":
        return r3l.compose(
            run="long", **named, settings={"store.root": root} | {k: json.loads(v) for k, v in map(_pair, given)}
        )
    sections: dict[str, Any] = {}
    for key, value in map(_pair, given):
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = json.loads(value)
    return compose_for_run(Form.model_validate({"run": "long", "store": {"root": root}} | named | sections).asked())


def _pair(assignment: str) -> tuple[str, str]:
    key, _, value = assignment.partition("=")
    return key, value


WAYS = ("command", "python", "form")


@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_with_its_own_settings(way: str, root: str) -> None:
    before, config = load_config(Store.open(root), "long", "", 0), started_by(way, root)
    assert config == before.model_copy(update={"store": config.store})
    assert check_changes(Store.open(root), config, 1) == []
    more = started_by(way, root, "rollout.tasks=5")
    assert (more.rollout.tasks, more.environment, more.seed) == (5, before.environment, 7)
    assert [str(one) for one in check_changes(Store.open(root), more, 1)] == ["rollout.tasks: 3 → 5"]


@pytest.mark.parametrize("way", WAYS)
def test_presets_that_are_named_again_change_nothing(way: str, root: str) -> None:
    again = started_by(way, root, policy="household", environment="household", method="grpo")
    assert check_changes(Store.open(root), again, 1) == []


CHANGES: list[tuple[dict[str, str], str]] = [
    ({"environment": "webshop"}, r"environment\.kind=household, now webshop"),
    ({"method": "raft"}, r"method\.kind=grpo, now raft"),
    ({"policy": "latent"}, r"policy\.path=data/policies/household-easy-0, now data/policies/alfworld-latent-1-0"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("named", "said"), CHANGES, ids=lambda one: str(one)[:20])
def test_another_policy_environment_or_method_is_refused(way: str, named: dict[str, str], said: str, root: str) -> None:
    config, store = started_by(way, root, **named), Store.open(root)
    with pytest.raises(ConfigError, match=said) as refused:
        check_changes(store, config, 1)
    assert "--change" in str(refused.value)
    check_changes(store, config.model_copy(update={"change": True}), 1)
    check_changes(store, config.model_copy(update={"run": "another"}), 0)


@pytest.mark.parametrize(
    "given",
    ["environment.level=standard", "method.loss_tokens=60", "policy.context_tokens=4096", "environment.max_turns=9"],
)
def test_their_settings_are_refused_too_but_for_those_that_change_no_row(given: str, root: str) -> None:
    store = Store.open(root)
    with pytest.raises(ConfigError, match=given.partition("=")[0].replace(".", r"\.")):
        check_changes(store, started_by("command", root, given), 1)
    check_changes(store, started_by("command", root, "environment.workers=3", "policy.name=x"), 1)


def test_all_settings_at_once_are_refused_where_they_are_not_the_runs(root: str) -> None:
    """What the usual presets give, handed over whole: a schedule's stored parameters, or a notebook's `Config`."""
    whole = compose(run="long", assignments=[f"store.root={root}"])
    assert compose_for_run(Form.model_validate(whole).asked()) == whole
    with pytest.raises(ConfigError, match=r"iteration 0 had .*environment\.kind=household, now alfworld"):
        check_changes(Store.open(root), whole, 1)
    with pytest.raises(ConfigError, match=r"environment\.kind=household, now alfworld"):
        r3l.iterate(whole)
    with pytest.raises(ConfigError, match=r"environment\.kind=household, now alfworld"):
        r3l.train(whole, 2)


def test_an_evaluation_plays_the_runs_policy(root: str) -> None:
    store = Store.open(root)
    check_changes(store, started_by("command", root, environment="webshop"), 1, training=False)
    with pytest.raises(ConfigError, match=r"policy\.path"):
        check_changes(store, started_by("command", root, policy="latent"), 1, training=False)


def test_an_iteration_that_was_begun_goes_on_with_its_own_settings(root: str) -> None:
    store = Store.open(root)
    save_config(store, started_by("command", root, "rollout.tasks=6"), 1)
    assert started_by("command", root).rollout.tasks == 6
    assert started_by("command", root, "iteration=0").rollout.tasks == 3
    assert started_by("command", root, 'branch="b"').rollout.tasks == 6


def test_a_change_is_an_event_of_the_first_stage_that_goes_by_it(root: str) -> None:
    store = Store.open(root)
    changed = started_by("command", root, "environment.max_turns=9", "change=true", "rollout.tasks=5", method="raft")
    events = [one for stage in STAGES for one in change_events(store, changed, 1, stage)]
    assert {(one.stage, one.subject_id, one.reason) for one in events} >= {
        ("tasks", "rollout.tasks", "3 → 5"),
        ("tasks", "environment.max_turns", "16 → 9"),
        ("credit", "method.kind", "grpo → raft"),
    }
    assert {(one.event, one.iteration) for one in events} == {("setting_changed", 1)}
    save_config(store, changed, 1)
    assert not load_config(store, "long", "", 1).change
    assert [one for stage in STAGES for one in change_events(store, started_by("command", root), 2, stage)] == []


def test_parameters_of_the_optimiser_are_never_changed(root: str) -> None:
    asked = started_by("command", root, "policy.adapter=lora", "change=true")
    with pytest.raises(ConfigError, match="not even --change"):
        check_changes(Store.open(root), asked, 1)


def test_weights_and_tokenizer_of_a_run_stay_together(tmp_path: Path) -> None:
    store, config = Store.open(str(tmp_path)), compose(run="demo")
    for name in ("start", "learner", "larger"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text("{}")
        size = 8 if name == "larger" else 4
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": size}))
    start, learner, larger = (PolicySnapshot(str(tmp_path / name), name) for name in ("start", "learner", "larger"))
    refuse_other_start(config, store, start, learner)
    with pytest.raises(ConfigError, match="vocab_size is 8, the run's weights have 4"):
        refuse_other_start(config, store, larger, learner)
    (tmp_path / "start" / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(ConfigError, match="tokenizer or chat template is another"):
        refuse_other_start(config, store, start, learner)
    shutil.copy(tmp_path / "start" / "chat_template.jinja", tmp_path / "learner")
    refuse_other_start(config, store, start, learner)


def test_an_adapter_stays_on_the_weights_that_it_was_trained_on(tmp_path: Path) -> None:
    store, config = Store.open(str(tmp_path / "store")), compose(run="long")
    commit_iteration(store, run="long")
    first = store.manifest(next(one for one in store.stages("long") if one.stage == "base"))["policy"]
    adapter = PolicySnapshot(str(tmp_path), "trained", base_path="base")
    refuse_other_start(config, store, PolicySnapshot(str(tmp_path), first), adapter)
    with pytest.raises(ConfigError, match="adapter lies on"):
        refuse_other_start(config, store, PolicySnapshot(str(tmp_path), "other"), adapter)


def test_what_is_asked_is_what_is_named() -> None:
    assert Asked.of(policy="household", seed=None, assignments=["rollout.tasks=2"]) == Asked(
        {"policies": "household"}, {"rollout": {"tasks": 2}}
    )
