"""ERL (2026, arXiv:2602.13949): attempt, reflection and guided second are each rewarded, the second distilled."""

from collections.abc import Sequence
from dataclasses import replace

from r3l.config.methods.rivals import ERLSettings, ReflectRetryRewardSettings
from r3l.credit.advantages import scaled_advantages, signs
from r3l.methods.base import LeftOut, Lesson, Objective
from r3l.methods.guided.reflect_retry_reward import ReflectRetryReward
from r3l.records import Credit, Kind, Reflection, Trajectory


class ERL(ReflectRetryReward):
    """Samples as Reflect, Retry, Reward. GRPO on the first attempts, on the reflections, whose reward is their second
    attempt's, and on these as they ran, each kind against its own; RAFT on those that solve the task, behind the plain
    prompt. With `memory_iterations` the reflector is shown the last guidance after which a second at the task won.
    """

    def guidance_memory(self, settings: ReflectRetryRewardSettings) -> int:
        return settings.memory_iterations if isinstance(settings, ERLSettings) else 0

    def credit(self, settings: ReflectRetryRewardSettings, members: Sequence[Trajectory]) -> list[Credit]:
        credits = super().credit(settings, members)
        firsts = [one.reward - one.penalty for one in credits if one.kind == Kind.BASE]
        scaled = scaled_advantages(firsts, settings.scale).tolist()
        of_firsts = zip(scaled, signs(scaled), strict=True)
        is_kept = [one.reward >= settings.success_threshold for one in members]
        worths = [
            next(of_firsts) if member.kind == Kind.BASE else (float(kept), "kept" if kept else "rejected")
            for member, kept in zip(members, is_kept, strict=True)
        ]
        return [
            replace(one, scaled=advantage, advantage=advantage, rule=rule)
            for one, (advantage, rule) in zip(credits, worths, strict=True)
        ]

    def objective(self, settings: ReflectRetryRewardSettings, member: Trajectory) -> Objective:
        if member.kind == Kind.DISTILLED:
            return Objective("cross_entropy", coefficient=settings.loss_factor)
        return self.clipped(settings)

    def lessons(
        self, settings: ReflectRetryRewardSettings, attempts: Sequence[Trajectory], reflections: Sequence[Reflection]
    ) -> tuple[list[Lesson], list[LeftOut]]:
        lessons, left_out = super().lessons(settings, attempts, reflections)
        second_of = {one.reflection_id: one for one in attempts if one.kind == Kind.RETRY}
        seconds = [one._replace(retry=second_of[one.reflection.reflection_id]) for one in lessons]
        return lessons + seconds, left_out
