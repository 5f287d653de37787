"""RLSD (2026, arXiv:2604.03128) and SERL (2026, arXiv:2605.19447): the outcome gives the sign, a teacher the size."""

from collections.abc import Sequence
from typing import Any

from r3l.config.methods.taught import RLSDSettings
from r3l.methods.base import RatioMethod, Teacher
from r3l.methods.taught.contexts import taught_plan, teacher_of
from r3l.records import Episode, SamplingPlan


class RLSD(RatioMethod[RLSDSettings]):
    """As GRPO, with A ((1 - l) + l clip(exp(sign(A) (log pi_T - log pi)), 0.8, 1.2)) as a token's advantage: of a good
    trajectory those tokens count more that the teacher would say, of a bad one those that it would not. l falls from
    `teacher_mix` to 0 over `teacher_mix_iterations`. A trajectory without a teacher has A, and so have tokens that it
    does not weigh (`teacher_weighs`).
    """

    def plan(self, settings: RLSDSettings, group_size: int) -> SamplingPlan:
        return taught_plan(settings, group_size)

    def teacher(self, settings: RLSDSettings, member: Episode, group: Sequence[Episode]) -> Teacher | None:
        return teacher_of(settings, member, group)

    def taught(self, settings: RLSDSettings, iteration: int) -> dict[str, Any]:
        mix = settings.teacher_mix * max(0.0, 1 - iteration / settings.teacher_mix_iterations)
        clip = settings.teacher_clip
        return {"rule": "reweigh", "mix": mix, "low": 1 - clip, "high": 1 + clip} if mix else {}

    def weighs_actions(self, settings: RLSDSettings) -> bool:
        return settings.teacher_weighs == "action"
