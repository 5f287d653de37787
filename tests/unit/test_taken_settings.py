"""Limits and plans are taken from the settings of the same names."""

from dataclasses import asdict, fields

from r3l.config import compose
from r3l.config.methods import R3LSettings
from r3l.config.section import from_settings
from r3l.exploration.explorer import Limits
from r3l.methods import plan
from r3l.pipeline.workbench import limits
from r3l.records import SamplingPlan


def test_every_limit_of_an_episode_is_a_setting():
    changed = {
        "environment.max_turns": 7, "environment.reply_tokens": 33, "environment.bad_reply": "end",
        "environment.malformed_reward": -0.1, "rollout.temperature": 0.9, "rollout.reflection_temperature": 0.3,
        "rollout.reflection_tokens": 55, "rollout.structured_reflections": True,
        "rollout.reflection_context": "continued",
    }  # fmt: skip
    found = limits(compose(environment="household", assignments=[f"{name}={value}" for name, value in changed.items()]))
    assert asdict(found) == {name.partition(".")[2]: value for name, value in changed.items()}
    assert len(changed) == len(fields(Limits))


def test_a_plan_has_the_methods_settings_and_the_defaults_of_the_rest():
    settings = R3LSettings(retry_from="start", diverged="restart", guidance="shuffled", retries_per_base=2)
    expected = {"retry_from": "start", "diverged": "restart", "guidance": "shuffled", "retry_when": "not_success"}
    made = asdict(plan(settings, 8))
    assert made.items() >= expected.items()
    assert (made["bases"], made["retries_per_base"], made["retried_bases"]) == (4, 2, 2)
    assert asdict(from_settings(SamplingPlan, settings, bases=1, retries_per_base=9))["retries_per_base"] == 9
    assert plan(compose(method="grpo").method, 8) == SamplingPlan(bases=8)
