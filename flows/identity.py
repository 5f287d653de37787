"""Which settings make a stage what it is. Batch sizes, worker counts and time-outs are left out: they change no row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from r3l.config import Config
from r3l.exploration.prompting import prompts_hash
from r3l.methods import plan

NOT_IDENTITY = {"workers", "step_timeout_s", "data_root", "tasks_per_shard", "shards_in_flight", "device", "timeout_s",
                "processes", "micro_batch_tokens", "logits_chunk", "checkpoint_segments"}


def _of(section: Any) -> dict[str, Any]:
    return {name: value for name, value in section.model_dump(mode="json").items() if name not in NOT_IDENTITY}


def stage_settings(config: Config, stage: str) -> dict[str, Any]:
    """The settings that `stage` depends on; its parents' settings reach it through their fingerprints."""
    world, rollout = _of(config.environment), _of(config.rollout)
    context = {"context_tokens": config.policy.context_tokens, "thinking": config.policy.thinking}
    method, sampled = _of(config.method), asdict(plan(config.method, rollout["group_size"]))
    return {
        "tasks": {"environment": world, "tasks": rollout["tasks"]},
        "base": {"environment": world, "temperature": rollout["temperature"], "bases": sampled["bases"], **context},
        "oracle_pivots": {"environment": world},
        "reflections": {"temperature": rollout["reflection_temperature"], "tokens": rollout["reflection_tokens"],
                        "structured": rollout["structured_reflections"], "prompts": prompts_hash(),
                        **sampled, **context},
        "retries": {"temperature": rollout["temperature"], "prompts": prompts_hash(), **sampled, **context},
        "distilled": {},
        "credit": {"method": method},
        "training_rows": {"method": method},
        "replay": {name: value for name, value in _of(config.training).items() if name.startswith("replay_")},
        "updates": {"training": _of(config.training), "policy": _of(config.policy)},
    }[stage]
