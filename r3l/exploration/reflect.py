"""Reflections: the policy diagnoses an attempt and names the turn to retry from (paper, section 3.1)."""

import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from r3l.environments.base import Secretive
from r3l.environments.replies import after_thought
from r3l.errors import EngineError, ReflectionError, WorldError
from r3l.exploration.explorer import Explorer
from r3l.exploration.guides import WRITERS, About, NoRoom, NothingToSay, Written
from r3l.exploration.report import OUTCOMES, fields, find_object, integer, parse_report
from r3l.records import Episode, Reflection, SamplingPlan, Status, Task


@dataclass(frozen=True, slots=True)
class Reading:
    """What was parsed from a reflection's text."""

    status: Status
    reason: str = ""
    report: str = ""
    outcome: str | None = None
    pivot_asked: int | None = None
    pivot_turn: int | None = None


async def reflect(
    explorer: Explorer,
    task: Task,
    plan: SamplingPlan,
    base: Episode,
    about: Episode,
    attempt: int,
    group_failed: bool = True,
    remembered: str = "",
) -> Reflection:
    """Reflect on `about` (the base itself, or an earlier distilled trajectory of it). Always a row, valid or not.

    Args:
        group_failed: whether no base of the group solved the task.
        remembered: an earlier report that led to a success at the task, which the reflector is shown.
    """
    began = time.monotonic()
    reflection_id = f"{base.trajectory.trajectory_id}/reflection={attempt}"
    request = About(explorer, task, plan, about, attempt, reflection_id, remembered)
    writing, reading = await _written(request, base)
    prompt_tokens, response_tokens = writing.counts or (len(writing.context_ids), len(writing.token_ids))
    sampled_tokens, is_parsed = response_tokens or 0, reading.status == Status.PARSED
    explorer.progress.add("reflections", done=1, tokens=sampled_tokens, done_tokens=sampled_tokens, parsed=is_parsed)
    return Reflection(
        reflection_id=reflection_id,
        trajectory_id=about.trajectory.trajectory_id,
        base_id=base.trajectory.trajectory_id,
        iteration=task.iteration,
        task=task.task,
        group_id=task.group_id,
        attempt=attempt,
        text=writing.text,
        **asdict(reading),
        decision=_decided(explorer, task, plan, about, reading, group_failed),
        context_ids=writing.context_ids,
        response_ids=writing.token_ids,
        response_logprobs=writing.logprobs,
        finish_reason=writing.finish_reason,
        policy=writing.policy,
        seed=task.seed,
        seconds=time.monotonic() - began,
        source=plan.source,
        level=writing.level,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
    )


async def _written(request: About, base: Episode) -> tuple[Written, Reading]:
    """Write on the attempt, and read what was written. A failure is a reading that says why."""
    plan, about = request.plan, request.episode
    writing = Written(policy=request.explorer.policy if plan.source == "policy" else "")
    if plan.retried_bases is not None and base.trajectory.attempt >= plan.retried_bases:
        return writing, Reading(Status.SKIPPED, f"the budget has retries for the first {plan.retried_bases} bases")
    if not Status(about.trajectory.status).trainable or not about.turns:
        return writing, Reading(Status.SKIPPED, f"the attempt ended in {about.trajectory.status}")
    writing = request.begun
    try:
        writing = await WRITERS[plan.source](request, writing)
        own = plan.source == "policy"  # else its template is not the policy's
        return writing, _read(plan, about, request.explorer.chat.whole(writing.text) if own else writing.text)
    except EngineError as error:
        return writing, Reading(Status.ENGINE_ERROR, str(error))
    except WorldError as error:
        return writing, Reading(Status.ENVIRONMENT_ERROR, str(error))
    except NoRoom as error:
        return writing, Reading(Status.CONTEXT_LIMIT, str(error))
    except NothingToSay as error:
        return writing, Reading(Status.SKIPPED, str(error))


def _decided(
    explorer: Explorer, task: Task, plan: SamplingPlan, about: Episode, reading: Reading, group_failed: bool
) -> str:
    """Decide like `decide`, but run no retry if the report tells the answer of the task."""
    decision, world = decide(plan, about, reading, group_failed), explorer.world
    if decision != "retry" or not isinstance(world, Secretive):
        return decision
    leak = world.reveals(task, reading.report, [turn.response for turn in about.turns])
    return "no retry: the report tells the answer" if leak else decision


def _read(plan: SamplingPlan, about: Episode, text: str) -> Reading:
    if plan.reflection == "critique":
        return (
            Reading(Status.PARSED, report=critique, pivot_turn=0)
            if (critique := after_thought(text)).strip()
            else Reading(Status.INVALID, "empty critique")
        )
    try:
        report = parse_report(text, len(about.turns))
    except ReflectionError as error:
        return _repaired(plan, text, len(about.turns), str(error))
    return Reading(
        Status.PARSED, report=report.text, outcome=report.outcome, pivot_asked=report.pivot, pivot_turn=report.pivot
    )


def _repaired(plan: SamplingPlan, text: str, turns: int, reason: str) -> Reading:
    """The rule for invalid reflections: skip has no pivot; clamp needs a number to clamp; zero restarts in any case. A
    readable outcome is kept: an attempt that the report calls a success is not retried for want of a pivot."""
    report, pivot_number = "", None
    report_fields: dict[str, Any] = {}
    # whatever can still be read is kept, key by key: half a report may name its outcome
    with suppress(ReflectionError):
        report = find_object(text)
        report_fields = fields(report)
        pivot_number = integer(report_fields.get("retry_from_step"))
    outcome = report_fields.get("trajectory_outcome")
    pivot = {"skip": None, "zero": 0, "clamp": None if pivot_number is None else min(max(pivot_number, 0), turns - 1)}[
        plan.invalid_reflection
    ]
    pivot_asked = (
        pivot_number if pivot_number is not None and abs(pivot_number) < 2**31 else None
    )  # what the column holds; the reason has the number
    return Reading(
        Status.INVALID,
        reason,
        report=report,
        outcome=outcome if outcome in OUTCOMES else None,
        pivot_asked=pivot_asked,
        pivot_turn=pivot,
    )


def decide(plan: SamplingPlan, about: Episode, reading: Reading, group_failed: bool = True) -> str:
    """Decide `retry`, or say why no retry is run (paper, algorithm)."""
    if reading.pivot_turn is None:
        return f"no retry: reflection {reading.status}"
    if plan.retry_when == "never":
        return "no retry: retries are off"
    if plan.retry_when == "reward_below" and about.trajectory.reward >= plan.retry_reward_below:
        return f"no retry: reward {about.trajectory.reward:g} is not below {plan.retry_reward_below:g}"
    if plan.retry_when == "group_failed" and not group_failed:
        return "no retry: an attempt of the group solved the task"
    if plan.retry_when == "not_success" and reading.outcome == "success":
        return "no retry: outcome success"
    return "retry"
