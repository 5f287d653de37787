"""R3L: reflect, retry from the pivot, stitch without the guidance (paper, section 3)."""

from collections.abc import Sequence
from dataclasses import replace

from r3l.config.methods import R3LSettings
from r3l.config.section import from_settings
from r3l.credit.turns import PivotMask
from r3l.methods.base import LeftOut, Lesson, Memory, Method, Objective
from r3l.methods.meta_tasks import kept_turns, report_worths, why_not
from r3l.records import Credit, Kind, Reflection, SamplingPlan, Trajectory


class R3L(Method[R3LSettings]):
    """N/2 bases, a reflection on each, retries from the pivot. Amplified advantages, suffixes only, plus the SFT of
    the reflections and retries that worked. No ratio, no reference. Each ablation is a setting.

    The meta-task terms are expectations over what the policy itself reflects and retries under: guidance of another
    source gives none, unless `sft_guidance` says so.
    """

    def plan(self, settings: R3LSettings, group_size: int) -> SamplingPlan:
        """Plan retries as half of the budget: with k sequential retries per base, only the first N/2k bases are retried
        (paper, table ``retry_count``), and k is N/2 at most."""
        half = group_size // 2
        retries = min(settings.retries_per_base, half)
        if not settings.reflect or retries == 0:
            return SamplingPlan(bases=group_size)
        return from_settings(
            SamplingPlan,
            settings,
            bases=half,
            reflection="report",
            retries_per_base=retries,
            retried_bases=half // retries,
        )

    def credit(self, settings: R3LSettings, members: Sequence[Trajectory]) -> list[Credit]:
        credits = super().credit(settings, members)
        if settings.amplify_distilled:
            return credits
        return [
            replace(one, advantage=one.scaled, rule="positive")
            if one.kind == Kind.DISTILLED and one.scaled > 0
            else one
            for one in credits
        ]

    def pivot_mask(self, settings: R3LSettings) -> PivotMask:
        return settings.pivot_mask

    def lessons(
        self, settings: R3LSettings, attempts: Sequence[Trajectory], reflections: Sequence[Reflection]
    ) -> tuple[list[Lesson], list[LeftOut]]:
        attempt_of = {attempt.trajectory_id: attempt for attempt in attempts}
        retry_of = {attempt.reflection_id: attempt for attempt in attempts if attempt.kind == Kind.RETRY}
        worths = report_worths(settings, reflections, retry_of, attempt_of)
        lessons: list[Lesson] = []
        left_out: list[LeftOut] = []
        for reflection, worth in zip(reflections, worths, strict=True):
            retry = retry_of.get(reflection.reflection_id)
            if worth.weight:
                lessons.append(Lesson(reflection, advantage=worth.weight))
            else:
                left_out.append(LeftOut(reflection.reflection_id, worth.reason))
            if retry and (reason := why_not(settings, reflection, retry, attempt_of)):
                left_out.append(LeftOut(retry.trajectory_id, reason))
            elif retry:
                lessons.append(Lesson(reflection, retry, kept_turns(settings, retry)))
        return lessons, left_out

    def objective(self, settings: R3LSettings, member: Trajectory) -> Objective:
        return self.rl_loss(settings, settings.loss_factor)

    def rl_loss(self, settings: R3LSettings, coefficient: float) -> Objective:
        """Make the RL loss with the ratio that is set."""
        if settings.loss_ratio == "none":
            return Objective("policy_gradient", coefficient=coefficient)
        clip = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
        return Objective("cispo" if settings.loss_ratio == "cispo" else "clipped_ratio", clip, coefficient)

    def lesson_objective(self, settings: R3LSettings) -> Objective:
        if settings.sft_as_rl:
            return self.rl_loss(settings, settings.sft_weight * settings.loss_factor)
        return Objective("cross_entropy", coefficient=settings.sft_weight, term="sft")

    def memory(self, settings: R3LSettings) -> Memory:
        return Memory(settings.meta_memory, settings.meta_replay)

    def report_objective(self, settings: R3LSettings) -> Objective:
        # The loss of SFT knows no weight but 1: that of REINFORCE is the same for 1, and takes any other.
        has_weights = settings.meta_objective != "sft" or settings.meta_success_weight is not None
        sft = self.lesson_objective(settings)
        return replace(sft, name="policy_gradient") if has_weights and not settings.sft_as_rl else sft
