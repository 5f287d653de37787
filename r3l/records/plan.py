"""What a method wants sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """What a method wants sampled for one task (paper, appendix Algorithm). Exploration reads only this."""

    bases: int
    reflection: Literal["none", "report", "critique"] = "none"
    retries_per_base: int = 0
    retried_bases: int | None = None  # only the first so many bases are reflected on; None: all
    retry_from: Literal["pivot", "start"] = "pivot"
    retry_when: Literal["not_success", "reward_below", "always", "never"] = "never"
    retry_reward_below: float = 1.0
    invalid_reflection: Literal["skip", "clamp", "zero"] = "skip"
    guidance_position: Literal["system", "mid_system", "user"] = "mid_system"
    diverged: Literal["drop", "restart"] = "drop"
    group_fill: Literal["none", "extra_base"] = "none"
    pivot: Literal["reflection", "turn_before", "random", "oracle"] = "reflection"  # controls: where retries begin ...
    guidance: Literal["own", "shuffled", "none"] = "own"  # ... and what they are told
