"""Reflections: the policy diagnoses an attempt and names the turn to retry from (paper, section 3.1)."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from r3l.engines.base import Completion
from r3l.environments.base import Secretive
from r3l.errors import EngineError, ReflectionError
from r3l.exploration.explorer import Explorer
from r3l.exploration.prompting import Message, reflection_messages
from r3l.exploration.report import OUTCOMES, fields, find_object, integer, parse_report, report_schema
from r3l.records import Episode, Reflection, SamplingPlan, Status, Task
from r3l.seeds import derive


class NoRoom(ReflectionError):
    """The attempt is too long: the context has no room for a reflection on it."""


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
    explorer: Explorer, task: Task, plan: SamplingPlan, base: Episode, about: Episode, attempt: int
) -> Reflection:
    """Reflect on `about` (the base itself, or an earlier distilled trajectory of it). Always a row, valid or not."""
    began = time.monotonic()
    reflection_id = f"{base.trajectory.trajectory_id}/reflection={attempt}"
    context, completion = [], Completion([], [], "stop")
    reading = Reading(Status.SKIPPED, f"the attempt ended in {about.trajectory.status}")
    if plan.retried_bases is not None and base.trajectory.attempt >= plan.retried_bases:
        reading = Reading(Status.SKIPPED, f"the budget has retries for the first {plan.retried_bases} bases")
    elif Status(about.trajectory.status).trainable and about.turns:
        context = explorer.chat.opening(_messages(plan, about))
        try:
            completion = await _complete(explorer, task, plan, about, reflection_id, context)
            reading = _read(explorer, plan, about, completion)
        except EngineError as error:
            reading = Reading(Status.ENGINE_ERROR, str(error))
        except NoRoom as error:
            reading = Reading(Status.CONTEXT_LIMIT, str(error))
    tokens = len(completion.token_ids)
    explorer.progress.add(
        "reflections", done=1, tokens=tokens, done_tokens=tokens, parsed=reading.status == Status.PARSED
    )
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
        text=explorer.chat.text(completion.token_ids),
        report=reading.report,
        outcome=reading.outcome,
        pivot_asked=reading.pivot_asked,
        pivot_turn=reading.pivot_turn,
        decision=_decided(explorer, task, plan, about, reading),
        context_ids=context,
        response_ids=completion.token_ids,
        response_logprobs=completion.logprobs,
        finish_reason=completion.finish_reason,
        policy=explorer.policy,
        seed=task.seed,
        seconds=time.monotonic() - began,
    )


def _decided(explorer: Explorer, task: Task, plan: SamplingPlan, about: Episode, reading: Reading) -> str:
    """Decide like `decide`, but run no retry if the report tells the answer of the task."""
    decision, world = decide(plan, about, reading), explorer.world
    if decision != "retry" or not isinstance(world, Secretive):
        return decision
    leak = world.reveals(task, reading.report, [turn.response for turn in about.turns])
    return "no retry: the report tells the answer" if leak else decision


def _messages(plan: SamplingPlan, about: Episode) -> list[Message]:
    turns = [(turn.observation, turn.response) for turn in about.turns]
    kind: Literal["report", "critique"] = "critique" if plan.reflection == "critique" else "report"
    return reflection_messages(turns, about.trajectory.final_observation, about.trajectory.reward, kind=kind)


async def _complete(
    explorer: Explorer, task: Task, plan: SamplingPlan, about: Episode, name: str, context: list[int]
) -> Completion:
    structured = explorer.limits.structured_reflections and plan.reflection == "report"
    completion = await explorer.complete(
        name,
        context,
        seed=derive(task.seed, name),
        temperature=explorer.limits.reflection_temperature,
        max_tokens=explorer.limits.reflection_tokens,
        json_schema=report_schema(len(about.turns), explorer.limits.reflection_tokens) if structured else None,
    )
    if completion.finish_reason == "context":
        limit = explorer.engine.context_limit
        raise NoRoom(f"{len(context)} prompt tokens leave no room for a reflection within {limit} tokens")
    return completion


def _read(explorer: Explorer, plan: SamplingPlan, about: Episode, completion: Completion) -> Reading:
    text = explorer.chat.text(completion.token_ids)
    if plan.reflection == "critique":
        return (
            Reading(Status.PARSED, report=text, pivot_turn=0)
            if text.strip()
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
    readable outcome is
    kept: an attempt that the report calls a success is not retried for want of a pivot."""
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


def decide(plan: SamplingPlan, about: Episode, reading: Reading) -> str:
    """Return `retry`, or why no retry is run (paper, algorithm)."""
    if reading.pivot_turn is None:
        return f"no retry: reflection {reading.status}"
    if plan.retry_when == "never":
        return "no retry: retries are off"
    if plan.retry_when == "reward_below" and about.trajectory.reward >= plan.retry_reward_below:
        return f"no retry: reward {about.trajectory.reward:g} is not below {plan.retry_reward_below:g}"
    if plan.retry_when == "not_success" and reading.outcome == "success":
        return "no retry: outcome success"
    return "retry"
