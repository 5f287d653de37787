"""R3L: reflect, retry from the pivot, stitch without the guidance (paper, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from r3l.config.methods import R3LSettings
from r3l.config.section import taken
from r3l.credit.pivot_mask import PivotMask
from r3l.methods.base import LeftOut, Lesson, Method, Objective
from r3l.records import Credit, Kind, Reflection, SamplingPlan, Status, Trajectory


class R3L(Method[R3LSettings]):
    """N/2 bases, a reflection on each, retries from the pivot. Amplified advantages, suffixes only, plus the SFT of
    the reflections and retries that worked. No ratio, no reference. Each ablation is a setting.

    The meta-task terms are expectations over what the policy itself reflects and retries under: guidance of another
    source gives none, unless `sft_guidance` says so.
    """

    def plan(self, settings: R3LSettings, group_size: int) -> SamplingPlan:
        """Plan retries as half of the budget: with k sequential retries per base, only the first N/2k bases are retried
        (paper, table `retry_count`), and k is N/2 at most."""
        half = group_size // 2
        retries = min(settings.retries_per_base, half)
        if not settings.reflect or retries == 0:
            return SamplingPlan(bases=group_size)
        return taken(
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
        seen = {attempt.trajectory_id: attempt for attempt in attempts}
        retry_of = {attempt.reflection_id: attempt for attempt in attempts if attempt.kind == Kind.RETRY}
        lessons: list[Lesson] = []
        left_out: list[LeftOut] = []
        for reflection in reflections:
            retry = retry_of.get(reflection.reflection_id)
            reason = why_not(settings, reflection, retry, seen)
            malformed = "" if reflection.status == Status.PARSED else f"{reflection.status}: {reflection.reason}"
            if not reflection.response_ids and reflection.source != "policy":
                malformed = f"written by the {reflection.source}: no tokens of the policy"
            if reason or malformed:
                left_out.append(LeftOut(reflection.reflection_id, reason or malformed))
            else:
                lessons.append(Lesson(reflection))
            if retry and reason:
                left_out.append(LeftOut(retry.trajectory_id, reason))
            elif retry:
                lessons.append(Lesson(reflection, retry, kept_turns(settings, retry)))
        return lessons, left_out

    def objective(self, settings: R3LSettings, member: Trajectory) -> Objective:
        return self.rl_loss(settings, settings.loss_factor)

    def rl_loss(self, settings: R3LSettings, coefficient: float) -> Objective:
        """Return the RL loss with the ratio that is set."""
        if settings.loss_ratio == "none":
            return Objective("policy_gradient", coefficient=coefficient)
        clip = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
        return Objective("cispo" if settings.loss_ratio == "cispo" else "clipped_ratio", clip, coefficient)

    def lesson_objective(self, settings: R3LSettings) -> Objective:
        if settings.sft_as_rl:
            return self.rl_loss(settings, settings.sft_weight * settings.loss_factor)
        return Objective("cross_entropy", coefficient=settings.sft_weight, term="sft")


def why_not(
    settings: R3LSettings, reflection: Reflection, retry: Trajectory | None, seen: dict[str, Trajectory]
) -> str:
    """Return why a reflection and its retry are no lesson; empty where they are one (rules of `sft_rule`)."""
    if settings.sft_rule == "none" or settings.sft_weight == 0:
        return "meta-tasks are off" if retry else not_retried(reflection)
    if reflection.source != "policy" and settings.sft_guidance == "own":
        return f"written by the {reflection.source}: not the policy's own guidance"
    target, base = seen.get(reflection.trajectory_id), seen.get(reflection.base_id)
    if target is None or base is None:
        return "what it reflects on is not stored"
    if retry is None:
        confirmed = (
            reflection.status == Status.PARSED
            and reflection.outcome == "success"
            and target.reward >= settings.success_threshold
        )
        return "" if settings.sft_rule == "solved" and confirmed else not_retried(reflection)
    if not Status(retry.status).trainable:
        return f"the retry ended with {retry.status}: {retry.reason}"
    before = max((target, base), key=lambda attempt: attempt.reward)
    if settings.sft_rule == "improved":
        return (
            ""
            if retry.reward > before.reward
            else f"the retry's reward {retry.reward:g} is not above {before.reward:g}"
        )
    if retry.reward < settings.success_threshold:
        return f"the retry's reward {retry.reward:g} is below {settings.success_threshold:g}"
    better = retry.reward > before.reward or retry.turns < before.turns
    return "" if better else f"the retry is neither better ({before.reward:g}) nor shorter ({before.turns} turns)"


def not_retried(reflection: Reflection) -> str:
    """Return why a reflection has no retry."""
    return "its retry is not stored" if reflection.decision == "retry" else reflection.decision or "no retry"


def kept_turns(settings: R3LSettings, retry: Trajectory) -> int:
    """Return turns of the parent before the retry's own. With the guidance in the system prompt nothing is kept as it
    was: the retry's first context holds the whole conversation."""
    return 0 if settings.guidance_position == "system" else retry.pivot_turn or 0
