"""`r3l evaluate RUN` plays as the run was trained, unless told otherwise."""

import pytest

from flows.cli.commands.run import config_of
from r3l import plugins
from r3l.config import compose
from r3l.errors import ConfigError
from r3l.pipeline.evaluation import evaluated_iteration
from r3l.pipeline.settings.continuing import save_config
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

NOTHING = {"preset": "", "method": "", "policy": "", "environment": ""}


@pytest.fixture
def root(tmp_path) -> str:
    """A run `long` on household games, trained for one iteration; its store was elsewhere then."""
    store = Store.open(str(tmp_path))
    commit_iteration(store, run="long")
    trained = compose(
        environment="household",
        method="grpo",
        run="long",
        assignments=[
            "policy.path=data/policies/mine",
            "environment.level=long",
            "evaluation.tasks=7",
            "store.root=/elsewhere",
            "iteration=0",
        ],
    )
    save_config(store, trained, 0)
    return str(tmp_path)


def test_a_run_is_evaluated_as_it_was_trained(root):
    config = config_of("long", NOTHING, "", [f"store.root={root}", "evaluation.repeats=2"], None)
    assert (config.policy.path, config.environment.kind, config.environment.level, config.method.kind) == (
        "data/policies/mine",
        "household",
        "long",
        "grpo",
    )
    assert (config.evaluation.tasks, config.evaluation.repeats, config.store.root, config.iteration) == (
        7,
        2,
        root,
        None,
    )
    assert config_of("long", NOTHING, "vllm_server", [f"store.root={root}"], -1).engine.kind == "vllm_server"


def test_an_engine_may_be_a_class_that_the_command_names(root, monkeypatch):
    for name in (plugins.NAMED, plugins.FOLDERS):
        monkeypatch.setenv(name, "")
    monkeypatch.syspath_prepend("tests/example_plugin")
    config = config_of("long", NOTHING, "guess_player:Player", [f"store.root={root}"], None)
    assert (config.engine.kind, config.method.kind) == ("guess_player:Player", "grpo")


def test_what_is_named_counts_on_top_of_the_run(root):
    config = config_of("long", {**NOTHING, "environment": "webshop"}, "", [f"store.root={root}"], 0)
    assert (config.environment.kind, config.policy.path, config.iteration) == ("webshop", "data/policies/mine", 0)


def test_a_bare_model_is_evaluated_as_the_starting_policy(tmp_path):
    """No such run: the presets, and the starting policy is all that there is."""
    config = config_of(
        "bare", NOTHING, "", [f"store.root={tmp_path}", "evaluation.benchmark=gsm8k", "evaluation.attempts=3"], None
    )
    assert (config.run, config.evaluation.benchmark, config.evaluation.attempts) == ("bare", "gsm8k", 3)
    with pytest.raises(ConfigError, match=r"evaluation\.task: unknown setting"):
        config_of("bare", NOTHING, "", [f"store.root={tmp_path}", "evaluation.task=3"], None)


def test_settings_of_the_environment_are_the_benchmarks(root):
    given = [f"store.root={root}", "evaluation.benchmark=webshop", "environment.catalogue=webshop/original"]
    config = config_of("long", NOTHING, "", given, None)
    assert (config.environment.kind, config.environment.catalogue, config.policy.path) == (
        "webshop",
        "webshop/original",
        "data/policies/mine",
    )
    own = config_of("long", NOTHING, "", [f"store.root={root}", "environment.max_turns=40"], None)
    assert (own.environment.kind, own.environment.max_turns) == ("household", 40)


def test_an_evaluation_of_a_branch_that_is_not_there_is_refused(tmp_path):
    """It would be of the starting policy, under a branch of its own."""
    store = Store.open(str(tmp_path))
    commit_iteration(store)
    commit_iteration(store, iteration=1, branch="there")
    with pytest.raises(ConfigError, match="branch=their: run demo has there; leave it empty"):
        evaluated_iteration(compose(run="demo", branch="their"), store)
    assert evaluated_iteration(compose(run="demo", branch="there"), store) == 1
