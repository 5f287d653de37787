"""Every preset parses; what differs between two of them is told; a combination that can't work is refused."""

import re
from collections.abc import Iterator
from itertools import product
from typing import get_args

import pytest
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from flows.cli.commands.look import presets
from r3l.config import compose, load_preset, preset_names
from r3l.config.compose import merge, resolve_conditions, validate
from r3l.config.kinds import Kinds
from r3l.config.methods import R3LSettings
from r3l.config.methods.rivals import DAPOSettings
from r3l.config.model import Config
from r3l.config.preset_diff import diff_presets
from r3l.errors import ConfigError
from r3l.methods import METHODS, plan

PRESETS = preset_names("methods")


@pytest.mark.parametrize(
    ("method", "environment", "model"), product(PRESETS, preset_names("environments"), ["embedded"])
)
def test_every_method_preset_composes_with_every_environment(method, environment, model):
    config = compose(policy=model, environment=environment, method=method)
    assert config.method.kind in METHODS
    assert config.method.kind == load_preset("methods", method)["method"]["kind"]


def test_every_method_has_a_preset():
    assert {load_preset("methods", name)["method"]["kind"] for name in PRESETS} == set(METHODS)


def test_every_preset_stays_within_the_budget():
    """N trajectories a task; Critique-GRPO doubles it, as the paper says of it, and HINT does where a group fails."""
    for name, size in product(PRESETS, [2, 4, 8, 16]):
        settings = compose(method=name).method
        made = plan(settings, size)
        retried = made.bases if made.retried_bases is None else made.retried_bases
        rollouts = made.bases + retried * made.retries_per_base
        assert rollouts == (
            2 * size if name in {"critique_grpo", "critique_grpo_as_paper", "hint", "reflect_grpo_as_paper"} else size
        ), name


@pytest.mark.parametrize(("retries", "size", "expected"), [
    (0, 8, (8, 0, None)),
    (1, 8, (4, 1, 4)),
    (2, 8, (4, 2, 2)),
    (4, 8, (4, 4, 1)),
    (4, 4, (2, 2, 1)),
    (1, 2, (1, 1, 1)),
])  # fmt: skip
def test_retries_per_base_share_half_of_the_budget(retries, size, expected):
    made = plan(R3LSettings(retries_per_base=retries), size)
    assert (made.bases, made.retries_per_base, made.retried_bases) == expected


def test_paper_is_the_default():
    assert compose().method == R3LSettings()


def test_paper_and_released_differ_in_what_the_method_page_lists():
    assert diff_presets("paper", "released") == [
        ("method.scale", "std", "none"), ("method.loss_normalisation", "trajectory", "token"),
        ("method.loss_factor", 1.0, 0.5), ("method.kl_coefficient", 0.0, 0.001), ("method.kl_estimator", "k3", "k2"),
        ("method.top_rule", "group_max", "success"), ("method.top_value", None, 1.0),
        ("method.sft_rule", "improved", "solved"), ("method.sft_as_rl", False, True),
        ("rollout.reflection_temperature", 0.7, 1.0), ("environment.bad_reply (webshop)", "continue", "end"),
        ("environment.malformed_reward (webshop)", 0.0, -0.1), ("method.retry_from (math)", "pivot", "start"),
    ]  # fmt: skip


def test_the_command_prints_the_differences():
    app = typer.Typer()
    app.command()(presets)
    printed = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["--diff", "paper", "r3l_without_credit"])
    assert printed.exit_code == 0, printed.output
    (line,) = [line for line in printed.output.splitlines() if "method." in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == ["method.pivot_mask", "both", "off"]


@pytest.mark.parametrize(("ablation", "difference"), [
    ("r3l_without_positive", ("method.amplify", True, False)),
    ("r3l_without_credit", ("method.pivot_mask", "both", "off")),
    ("r3l_without_reflect", ("method.reflect", True, False)),
])  # fmt: skip
def test_an_ablation_is_one_setting(ablation, difference):
    assert diff_presets("paper", ablation) == [difference]


def test_small_steps_change_the_step_and_what_a_reflection_weighs_and_nothing_else():
    assert diff_presets("paper", "r3l_small_steps") == [
        ("method.meta_objective", "sft", "gain"),
        ("method.meta_memory", 0, 64),
        ("training.epochs", 1, 2),
        ("training.minibatches", 1, 2),
    ]


def test_what_holds_a_pretrained_model_is_a_penalty_on_the_short_steps_that_reflections_are_weighed_in():
    assert diff_presets("r3l_small_steps", "r3l_held") == [
        ("method.kl_coefficient", 0.0, 0.2),
        ("method.kl_estimator", "k3", "k2"),
        ("training.epochs", 2, 1),
    ]


@pytest.mark.parametrize("method", ["grpo", "opmd"])
def test_amplification_is_a_setting_of_any_method(method):
    assert diff_presets(method, f"{method}_pa") == [
        ("method.top_rule", "none", "group_max"),
        ("method.amplify", False, True),
    ]


def test_a_condition_applies_in_its_environment_only():
    settings = {
        "environment": {"kind": "math"},
        "when": {"math": {"method": {"alpha": 5}}, "webshop": {"method": {"alpha": 7}}},
    }
    assert resolve_conditions(settings) == {"environment": {"kind": "math"}, "method": {"alpha": 5}}
    released = merge({"environment": {"kind": "math"}}, load_preset("methods", "released"))
    assert plan(validate(resolve_conditions(released)).method, 8).retry_from == "start"
    assert plan(compose(method="released").method, 8).retry_from == "pivot"


def test_a_diluted_top_is_refused_with_its_reason():
    with pytest.raises(
        ConfigError, match=r"scale=std with top_value=1 is refused.*0\.40.*1\.21.*1\.14.*2\.47"
    ) as refusal:
        compose(method="paper", assignments=["method.top_value=1"])
    assert "top_value=alpha" in str(refusal.value)
    assert compose(method="paper", assignments=["method.top_value=1", "method.scale=none"]).method.top_value == 1
    assert compose(method="paper", assignments=["method.top_value=1", "method.amplify=false"]).method.amplify is False


def test_a_limit_below_its_ramp_is_refused():
    with pytest.raises(ValueError, match="overlong_limit=10 is below overlong_tokens=20"):
        DAPOSettings(overlong_tokens=20, overlong_limit=10)


def test_an_unknown_preset_lists_those_that_exist():
    with pytest.raises(ConfigError, match=r"unknown preset 'papre' in methods: expected one of .*paper"):
        diff_presets("papre", "paper")


def settings(section: type[BaseModel] = Config, place: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting of the form with its place, the members of a union one by one."""
    for name, field in section.model_fields.items():
        members = [one for kinds in field.metadata if isinstance(kinds, Kinds) for one in kinds.own]
        inner = [
            one for one in (*(members or [field.annotation]), *get_args(field.annotation)) if isinstance(one, type)
        ]
        yield f"{place}{name}", field
        for one in inner:
            if issubclass(one, BaseModel):
                yield from settings(one, f"{place}{name}.{one.__name__}.")


def test_every_setting_is_described_in_sentences_that_state_its_bounds():
    """Descriptions are the form's text, and a form hides bounds."""
    every = {place: field for place, field in settings() if not place.endswith(".kind")}
    assert {"method.R3LSettings.alpha", "engine.VllmServerSettings.urls"} <= set(every)
    for place, field in every.items():
        text = field.description or ""
        assert re.match(r"[A-Z].* .*\.$", text, re.DOTALL), f"{place}: {text!r} is no sentence"
        for bound in (getattr(one, "le", None) for one in field.metadata):
            assert bound is None or f"{bound:g}" in text or f"{bound}" in text, f"{place}: {bound} is not in {text!r}"
