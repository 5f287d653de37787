"""What a teacher reads before a member's replies, made of stored token ids: nothing is tokenised."""

from collections.abc import Callable, Sequence

from r3l.config.methods.taught import TaughtSettings
from r3l.config.section import from_settings
from r3l.methods.base import Teacher
from r3l.records import Episode, Kind, SamplingPlan, Turn

ActionIds = Callable[[Turn], tuple[int, int]]  # from where to where in a reply the ids of its action stand


def teacher_of(settings: TaughtSettings, member: Episode, group: Sequence[Episode]) -> Teacher | None:
    """Find the teacher that is set; none where its sequence would be longer than `teacher_tokens`."""
    if settings.taught_by == "success":
        teacher = behind_success(member, group, settings.success_threshold)
    else:
        teacher = behind_guidance(member, group)
    if teacher is None:
        return None
    return teacher if len(teacher.ids) + tokens_of(member) <= settings.teacher_tokens else None


def behind_success(member: Episode, group: Sequence[Episode], threshold: float) -> Teacher | None:
    """Put the first other attempt that solved the task before the member's own, as it was played."""
    for other in group:
        attempt = other.trajectory
        another = attempt.kind == Kind.BASE and attempt.trajectory_id != member.trajectory.trajectory_id
        if another and attempt.reward >= threshold and other.turns:
            ids = [token for turn in other.turns for token in (*turn.context_ids, *turn.response_ids)]
            return Teacher(0, 0, ids)
    return None


def behind_guidance(member: Episode, group: Sequence[Episode]) -> Teacher | None:
    """Put what the member's first retry was told in the place where it was told: the retry's first context, with the
    guidance, instead of the member's own at the same turn."""
    for other in group:
        if other.trajectory.kind == Kind.RETRY and other.trajectory.parent_id == member.trajectory.trajectory_id:
            first = next(iter(other.turns), None)
            if first is None or first.turn >= len(member.turns):
                continue
            start = sum(len(turn.context_ids) + len(turn.response_ids) for turn in member.turns[: first.turn])
            return Teacher(start, start + len(member.turns[first.turn].context_ids), list(first.context_ids))
    return None


def action_spans(member: Episode, action_ids: ActionIds) -> list[tuple[int, int]]:
    """Find where in the member's row the tokens of its actions stand."""
    spans: list[tuple[int, int]] = []
    place = 0
    for turn in member.turns:
        place += len(turn.context_ids)
        first, stop = action_ids(turn)
        if first < stop:
            spans.append((place + first, place + stop))
        place += len(turn.response_ids)
    return spans


def tokens_of(member: Episode) -> int:
    return sum(len(turn.context_ids) + len(turn.response_ids) for turn in member.turns)


def taught_plan(settings: TaughtSettings, group_size: int) -> SamplingPlan:
    """Plan N trajectories; where guidance teaches, N/2, a report on each, and a retry that reads it."""
    if settings.taught_by == "success":
        return SamplingPlan(bases=group_size)
    return from_settings(
        SamplingPlan, settings, bases=group_size // 2, reflection="report", retries_per_base=1, retry_when="always"
    )
