"""What a method wants sampled, and the words for it, which the settings of methods take from here."""

from dataclasses import dataclass
from typing import Literal

RetryFrom = Literal["pivot", "start"]
RetryWhen = Literal["not_success", "reward_below", "group_failed", "always", "never"]
InvalidReflection = Literal["skip", "clamp", "zero"]
GuidancePosition = Literal["system", "mid_system", "user"]
Diverged = Literal["drop", "restart"]
GroupFill = Literal["none", "extra_base"]
PivotRule = Literal["reflection", "turn_before", "random", "oracle"]
GuidanceRule = Literal["own", "shuffled", "none", "oracle", "hint", "teacher"]
Source = Literal["policy", "oracle", "hint", "teacher"]


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """What a method wants sampled for one task (paper, appendix Algorithm). Exploration reads only this.

    A field is the method's setting of the same name, where it has one. The defaults are those of a method without such
    a setting.
    """

    bases: int
    reflection: Literal["none", "report", "critique"] = "none"
    retries_per_base: int = 0
    retried_bases: int | None = None  # only the first so many bases are reflected on; None: all
    retry_from: RetryFrom = "pivot"
    retry_when: RetryWhen = "never"
    retry_reward_below: float = 1.0
    invalid_reflection: InvalidReflection = "skip"
    guidance_position: GuidancePosition = "mid_system"
    diverged: Diverged = "drop"
    group_fill: GroupFill = "none"
    pivot: PivotRule = "reflection"  # where retries begin ...
    guidance: GuidanceRule = "own"  # ... and what they are told
    continued_turns: int = 0  # of each base, the most turns that are continued from ...
    continuations: int = 0  # ... and how often each
    hint_level: int = 0  # of the first hint
    resample_rounds: int = 0  # how often groups that do not count are replaced by new tasks

    @property
    def source(self) -> Source:
        """Name who writes what retries are told. For the controls shuffled and none the policy does, too."""
        return self.guidance if self.guidance in ("oracle", "hint", "teacher") else "policy"
