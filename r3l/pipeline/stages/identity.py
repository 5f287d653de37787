"""The identity of a stage: its settings, the version of the code that computes it, and every prompt that it shows.

Which settings belong to which stages is said at the settings (`IDENTITY_OF` of a section, `identity_of` at a field).
"""

from dataclasses import asdict
from typing import Any

from r3l.config import Config
from r3l.config.methods.shared import MethodSettings
from r3l.config.section import settings_of
from r3l.environments.base import Versioned, shown_by
from r3l.environments.kinds import data_of, make_world
from r3l.exploration.prompting import continued_messages, guidance, reflection_messages
from r3l.methods import METHODS, method_of, plan
from r3l.pipeline.workbench import Workbench
from r3l.records import SamplingPlan
from r3l.stages import STAGES
from r3l.store.digests import fingerprint_of
from r3l.store.layout import StageRef

# The version of the code that computes each stage.
CODE_VERSIONS = {name: stage.code for name, stage in STAGES.items()}


def stage_settings(config: Config, stage: str) -> dict[str, Any]:
    """Collect all that a stage is made with, but for the stages and policies that it is made from: its settings, its
    prompts, its code."""
    sampling_plan = plan(config.method, config.rollout.group_size)
    tasks_of = STAGES[stage].tasks_of
    split = getattr(config, tasks_of).split if tasks_of else ""
    prompt_texts = texts(config, sampling_plan, stage)
    return {
        "code": CODE_VERSIONS[stage],
        **settings_of(config, stage),
        **({"method_version": version} if (version := version_of(config, stage)) else {}),
        **({"plan": stage_plan} if (stage_plan := plan_of_stage(sampling_plan, stage)) else {}),
        **(world_of(config, split) if split else {}),  # stages after the tasks have it from them
        **({"prompts": fingerprint_of(prompt_texts)} if prompt_texts else {}),
    }


def version_of(config: Config, stage: str) -> int:
    """Find the version of the rules of a plug-in's method in the stages that go by them; 0: they have none."""
    belongs = stage in MethodSettings.IDENTITY_OF and config.method.kind not in METHODS
    return method_of(config.method).version if belongs else 0


def world_of(config: Config, split: str) -> dict[str, Any]:
    """Find what a world's settings do not say of it: what its tasks are made from, and the version of its rules."""
    world = make_world(config.environment)
    return {"data": data_of(config.environment, split), "world": world.version if isinstance(world, Versioned) else 1}


def plan_of_stage(sampled: SamplingPlan, stage: str) -> dict[str, Any]:
    """Choose what a stage does of the method's plan. Methods that want the same bases share them."""
    part = STAGES[stage].plan
    whole = asdict(sampled)
    continuation_fields = {name: whole.pop(name) for name in ("continued_turns", "continuations")}
    return {"": {}, "bases": {"bases": sampled.bases}, "continuations": continuation_fields, "whole": whole}[part]


def texts(config: Config, sampled: SamplingPlan, stage: str) -> list[Any]:
    """List the texts that a stage shows to the policy, with an example in the places of what differs from attempt to
    attempt."""
    if STAGES[stage].samples and STAGES[stage].plays:
        reflection_texts = [guidance("{report}")] if stage == "retries" else []
        return [*shown_by(make_world(config.environment)), *reflection_texts]
    if stage == "reflections" and sampled.reflection != "none" and sampled.source in {"policy", "teacher"}:
        if sampled.source == "policy" and config.rollout.reflection_context == "continued":
            return list(continued_messages(2, "{feedback}", 0.0, kind=sampled.reflection))
        return list(reflection_messages([("{observation}", "{reply}")], "{feedback}", 0.0, kind=sampled.reflection))
    return []


def work_identity(config: Config) -> dict[str, Any]:
    """Collect the same of all stages: what names a piece of work that has several."""
    return {stage: stage_settings(config, stage) for stage in STAGES}


def other_world(bench: Workbench, batch: StageRef) -> dict[str, Any]:
    """Find data and version of the world, if a replay plays tasks that were drawn under others: no setting and no
    parent of its stages tells of them."""
    if bench.replay is None:
        return {}
    now, drawn_under = world_of(bench.config, bench.config.environment.split), bench.store.manifest(batch)["settings"]
    return {} if all(drawn_under[name] == value for name, value in now.items()) else now
