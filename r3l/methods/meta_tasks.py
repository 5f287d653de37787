"""The meta-tasks of R3L: which reflections and retries are learned, and what a reflection weighs (`meta_objective`).

sft:  1 for a report whose retry is learned
gain: meta_gain_weight x gain, meta_valid_weight where the retry gained nothing, meta_invalid_weight of no valid report
rl:   reward - mean reward of the task's reports; reward = gain, or meta_invalid_weight of no valid report

gain = R(retry) - max(R(base), R(what was reflected on))
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from r3l.config.methods import R3LSettings
from r3l.credit.advantages import scaled_advantages
from r3l.records import Reflection, Status, Trajectory


class Worth(NamedTuple):
    """The weight of a reflection's row; where it is 0, why the reflection has none."""

    weight: float
    reason: str = ""


def report_worths(
    settings: R3LSettings,
    reflections: Sequence[Reflection],
    retry_of: Mapping[str | None, Trajectory],
    seen: Mapping[str, Trajectory],
) -> list[Worth]:
    """Weigh the reflections of one group, in order."""
    if settings.meta_objective == "sft":
        return [weigh_report(settings, one, retry_of.get(one.reflection_id), seen) for one in reflections]
    rewards = [reward(settings, one, retry_of.get(one.reflection_id), seen) for one in reflections]
    if settings.meta_objective == "rl":
        rewards = compare_rewards(rewards)
    return [weigh_outcome(settings, one, value, seen) for one, value in zip(reflections, rewards, strict=True)]


def compare_rewards(rewards: Sequence[float | str]) -> list[float | str]:
    """Compare what each reflection of a task brought with the mean of those of which that is known."""
    gains = [one for one in rewards if not isinstance(one, str)]
    advantages = iter(scaled_advantages(gains, "none").tolist())
    return [one if isinstance(one, str) else next(advantages) for one in rewards]


def weigh_report(
    settings: R3LSettings, reflection: Reflection, retry: Trajectory | None, seen: Mapping[str, Trajectory]
) -> Worth:
    """Weigh a reflection as the paper does: a report is learned where its retry is."""
    reason = why_not(settings, reflection, retry, seen) or no_report(reflection)
    weight = 1.0 if retry else success_weight(settings)
    return Worth(0.0, reason) if reason else Worth(weight)


def reward(
    settings: R3LSettings, reflection: Reflection, retry: Trajectory | None, seen: Mapping[str, Trajectory]
) -> float | str:
    """Compute what a reflection brought, or say why that can't be known."""
    if reason := no_lesson(settings, reflection, seen):
        return reason
    if reflection.status == Status.INVALID:
        return settings.meta_invalid_weight
    if reflection.status != Status.PARSED:
        return no_report(reflection)
    if retry is None:
        return not_retried(reflection)
    if not Status(retry.status).trainable:
        return f"the retry ended with {retry.status}: {retry.reason}"
    return retry.reward - attempt_to_beat(reflection, seen).reward


def weigh_outcome(
    settings: R3LSettings, reflection: Reflection, value: float | str, seen: Mapping[str, Trajectory]
) -> Worth:
    """Weigh a reflection by what it brought; `value` says why where that is not known."""
    if isinstance(value, str):
        # Nothing was tried after a report of success, so that it is in no comparison and has a weight of its own.
        right = not no_lesson(settings, reflection, seen) and rightly_success(
            settings, reflection, seen[reflection.trajectory_id]
        )
        return Worth(success_weight(settings) if right and reflection.response_ids else 0.0, value)
    if not reflection.response_ids:
        return Worth(0.0, no_report(reflection) or "no tokens of it are stored")
    if settings.meta_objective == "rl":
        return Worth(value, "the reports of its task all brought the same")
    if reflection.status == Status.INVALID:
        return Worth(value, no_report(reflection))
    if value > 0:
        return Worth(settings.meta_gain_weight * value, "meta_gain_weight is 0")
    return Worth(settings.meta_valid_weight, f"its retry gained nothing ({value:g})")


def why_not(
    settings: R3LSettings, reflection: Reflection, retry: Trajectory | None, seen: Mapping[str, Trajectory]
) -> str:
    """Explain why a reflection and its retry are no lesson; empty where they are one (rules of `sft_rule`)."""
    if settings.sft_rule == "none" or settings.sft_weight == 0:
        return "meta-tasks are off" if retry else not_retried(reflection)
    if reason := no_lesson(settings, reflection, seen):
        return reason
    # a right report of success needs no retry to be worth learning
    if retry is None:
        right = rightly_success(settings, reflection, seen[reflection.trajectory_id])
        return "" if right and success_weight(settings) else not_retried(reflection)
    if not Status(retry.status).trainable:
        return f"the retry ended with {retry.status}: {retry.reason}"
    before = attempt_to_beat(reflection, seen)
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


def no_lesson(settings: R3LSettings, reflection: Reflection, seen: Mapping[str, Trajectory]) -> str:
    """Explain why nothing is learned of a reflection, whatever came of it; empty where something may be."""
    if settings.sft_rule == "none" or settings.sft_weight == 0:
        return "meta-tasks are off"
    if reflection.source != "policy" and settings.sft_guidance == "own":
        return f"written by the {reflection.source}: not the policy's own guidance"
    is_stored = reflection.trajectory_id in seen and reflection.base_id in seen
    return "" if is_stored else "what it reflects on is not stored"


def no_report(reflection: Reflection) -> str:
    """Explain why a reflection is no report in the policy's tokens; empty where it is one."""
    if not reflection.response_ids and reflection.source != "policy":
        return f"written by the {reflection.source}: no tokens of the policy"
    return "" if reflection.status == Status.PARSED else f"{reflection.status}: {reflection.reason}"


def attempt_to_beat(reflection: Reflection, seen: Mapping[str, Trajectory]) -> Trajectory:
    """Choose the attempt that a retry has to beat: the better one of its base and what was reflected on."""
    pair = (seen[reflection.trajectory_id], seen[reflection.base_id])
    return max(pair, key=lambda attempt: attempt.reward)


def success_weight(settings: R3LSettings) -> float:
    """Choose the weight of a right report of success."""
    if settings.meta_success_weight is not None:
        return settings.meta_success_weight
    return 1.0 if settings.sft_rule == "solved" else 0.0


def rightly_success(settings: R3LSettings, reflection: Reflection, target: Trajectory) -> bool:
    """Tell whether a report says success of an attempt that solved its task."""
    says_success = reflection.status == Status.PARSED and reflection.outcome == "success"
    return says_success and target.reward >= settings.success_threshold


def not_retried(reflection: Reflection) -> str:
    """Explain why a reflection has no retry."""
    return "its retry is not stored" if reflection.decision == "retry" else reflection.decision or "no retry"


def kept_turns(settings: R3LSettings, retry: Trajectory) -> int:
    """Count the turns of the parent before the retry's own. With the guidance in the system prompt nothing is kept as
    it was: the retry's first context holds the whole conversation."""
    return 0 if settings.guidance_position == "system" else retry.pivot_turn or 0
