"""Reflections: the policy diagnoses an attempt and names the turn to retry from (paper, section 3.1)."""

import time
from contextlib import suppress
from dataclasses import dataclass
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
) -> Reflection:
    """Reflect on `about` (the base itself, or an earlier distilled trajectory of it). Always a row, valid or not.

    Args:
        group_failed: whether no base of the group solved the task.
    """
    began = time.monotonic()
    reflection_id = f"{base.trajectory.trajectory_id}/reflection={attempt}"
    asked = About(explorer, task, plan, about, attempt, reflection_id)
    written, reading = await _written(asked, base)
    prompt_tokens, response_tokens = written.counts or (len(written.context_ids), len(written.token_ids))
    sampled, parsed = response_tokens or 0, reading.status == Status.PARSED
    explorer.progress.add("reflections", done=1, tokens=sampled, done_tokens=sampled, parsed=parsed)
    return Reflection(
        reflection_id=reflection_id,
        trajectory_id=about.trajectory.trajectory_id,
        base_id=base.trajectory.trajectory_id,
        iteration=task.iteration,
        task=task.task,
        group_id=task.group_id,
        attempt=attempt,
        status=reading.status,
        reason=reading.reason,
        text=written.text,
        report=reading.report,
        outcome=reading.outcome,
        pivot_asked=reading.pivot_asked,
        pivot_turn=reading.pivot_turn,
        decision=_decided(explorer, task, plan, about, reading, group_failed),
        context_ids=written.context_ids,
        response_ids=written.token_ids,
        response_logprobs=written.logprobs,
        finish_reason=written.finish_reason,
        policy=written.policy,
        seed=task.seed,
        seconds=time.monotonic() - began,
        source=plan.source,
        level=written.level,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
    )


async def _written(asked: About, base: Episode) -> tuple[Written, Reading]:
    """Return what was written, and what was read of it. A failure is a reading that says why."""
    plan, about = asked.plan, asked.episode
    written = Written(policy=asked.explorer.policy if plan.source == "policy" else "")
    if plan.retried_bases is not None and base.trajectory.attempt >= plan.retried_bases:
        return written, Reading(Status.SKIPPED, f"the budget has retries for the first {plan.retried_bases} bases")
    if not Status(about.trajectory.status).trainable or not about.turns:
        return written, Reading(Status.SKIPPED, f"the attempt ended in {about.trajectory.status}")
    written = asked.begun
    try:
        written = await WRITERS[plan.source](asked, written)
        own = plan.source == "policy"  # else its template is not the policy's
        return written, _read(plan, about, asked.explorer.chat.whole(written.text) if own else written.text)
    except EngineError as error:
        return written, Reading(Status.ENGINE_ERROR, str(error))
    except WorldError as error:
        return written, Reading(Status.ENVIRONMENT_ERROR, str(error))
    except NoRoom as error:
        return written, Reading(Status.CONTEXT_LIMIT, str(error))
    except NothingToSay as error:
        return written, Reading(Status.SKIPPED, str(error))


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
    report, asked = "", None
    repaired: dict[str, Any] = {}
    with suppress(ReflectionError):
        report = find_object(text)
        repaired = fields(report)
        asked = integer(repaired.get("retry_from_step"))
    outcome = repaired.get("trajectory_outcome")
    pivot = {"skip": None, "zero": 0, "clamp": None if asked is None else min(max(asked, 0), turns - 1)}[
        plan.invalid_reflection
    ]
    kept = (
        asked if asked is not None and abs(asked) < 2**31 else None
    )  # what the column holds; the reason has the number
    return Reading(
        Status.INVALID,
        reason,
        report=report,
        outcome=outcome if outcome in OUTCOMES else None,
        pivot_asked=kept,
        pivot_turn=pivot,
    )


def decide(plan: SamplingPlan, about: Episode, reading: Reading, group_failed: bool = True) -> str:
    """Return `retry`, or why no retry is run (paper, algorithm)."""
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
