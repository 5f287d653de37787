"""Who writes what a retry is told: the policy itself, a teacher, the environment's oracle, or a hint of the task.

Each gives the row of a reflection. What the policy did not write has no tokens of the policy, unless a teacher shares
its tokenizer.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from r3l.engines.base import FinishReason, Sampling
from r3l.environments.base import Verdict, report
from r3l.errors import ConfigError, ReflectionError
from r3l.exploration.explorer import Explorer
from r3l.exploration.prompting import Kind, Message, continued_messages, reflection_messages
from r3l.exploration.report import report_schema
from r3l.records import Episode, SamplingPlan, Task
from r3l.system.seeds import derive


class NoRoom(ReflectionError):
    """The attempt is too long: the context has no room for a reflection on it."""


class NothingToSay(ReflectionError):
    """The oracle has no verdict on the attempt, or the task has no hint."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written on an attempt. `policy`: the digest of the policy that did; empty: none did. `counts`: tokens
    read and sampled, in a teacher's own tokens; None: they are those of the ids."""

    text: str = ""
    context_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    policy: str = ""
    level: int | None = None
    counts: tuple[int | None, int | None] | None = None


@dataclass(frozen=True, slots=True)
class About:
    """An attempt that is to be reflected on: `attempt` counts the reflections on its base, `name` is the new one's id,
    `remembered` an earlier report that led to a success at the task."""

    explorer: Explorer
    task: Task
    plan: SamplingPlan
    episode: Episode
    attempt: int
    name: str
    remembered: str = ""

    @property
    def begun(self) -> Written:
        """What is known before anything is written: the policy's prompt."""
        if self.plan.source != "policy":
            return Written()
        continues = self.explorer.limits.reflection_context == "continued"
        ids = self.continued if continues else self.explorer.chat.opening(self.messages)
        return Written(context_ids=ids, policy=self.explorer.policy)

    @property
    def continued(self) -> list[int]:
        """The attempt's own ids, C0 + A0 + C1 + A1 + ..., then the request."""
        turns, trajectory, chat = self.episode.turns, self.episode.trajectory, self.explorer.chat
        messages = continued_messages(
            len(turns), trajectory.final_observation, trajectory.reward, self.kind, self.remembered
        )
        own = [token for turn in turns for token in (*turn.context_ids, *turn.response_ids)]
        return own + chat.following(messages, chat.closed(turns[-1].response_ids))

    @property
    def messages(self) -> list[Message]:
        """The conversation of a reflector that reads the attempt as one text, as a teacher always does."""
        turns = [(turn.observation, turn.response) for turn in self.episode.turns]
        trajectory = self.episode.trajectory
        return reflection_messages(
            turns, trajectory.final_observation, trajectory.reward, kind=self.kind, remembered=self.remembered
        )

    @property
    def kind(self) -> Kind:
        return "critique" if self.plan.reflection == "critique" else "report"

    @property
    def sampling(self) -> Sampling:
        limits = self.explorer.limits
        with_schema = limits.structured_reflections and self.plan.reflection == "report"
        schema = report_schema(len(self.episode.turns), limits.reflection_tokens) if with_schema else None
        seed = derive(self.task.seed, self.name)
        return Sampling(limits.reflection_temperature, limits.reflection_tokens, seed, (), schema)


async def by_policy(about: About, begun: Written) -> Written:
    """Let the policy write. Raise `NoRoom`, or `EngineError`."""
    explorer, sampling, context = about.explorer, about.sampling, begun.context_ids
    reply = await explorer.complete(
        about.name,
        context,
        seed=sampling.seed,
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        json_schema=sampling.json_schema,
    )
    if reply.finish_reason == "context":
        limit = explorer.engine.context_limit
        raise NoRoom(f"{len(context)} prompt tokens leave no room for a reflection within {limit} tokens")
    text = explorer.chat.text(reply.token_ids)
    return replace(
        begun, text=text, token_ids=reply.token_ids, logprobs=reply.logprobs, finish_reason=reply.finish_reason
    )


async def by_teacher(about: About, begun: Written) -> Written:
    """Let the teacher write. Raise `NoRoom`, or `EngineError`."""
    teacher = about.explorer.teacher
    if teacher is None:
        raise ConfigError("method.guidance=teacher, and there is no teacher: set method.teacher")
    lesson = await asyncio.wrap_future(teacher.write(about.name, about.messages, about.sampling))
    if lesson.finish_reason == "context":
        raise NoRoom("the teacher's context leaves no room for a reflection")
    return Written(
        lesson.text,
        lesson.context_ids,
        lesson.token_ids,
        lesson.logprobs,
        lesson.finish_reason,
        teacher.digest,
        counts=lesson.counts,
    )


async def by_oracle(about: About, begun: Written) -> Written:
    """Put the oracle's verdict on an attempt that was not won into words: the turn and the cause.

    Raises:
        WorldError: the oracle failed. NothingToSay: it has no verdict.
    """
    trajectory, turns = about.episode.trajectory, about.episode.turns
    if trajectory.success:
        return Written(as_report("", "No mistake.", "success", "", 0))
    verdict: Verdict = await asyncio.wrap_future(
        about.explorer.pool.ask_oracle(
            f"{about.name}/oracle",
            about.task,
            [turn.action for turn in turns],
            [*(turn.observation for turn in turns), trajectory.final_observation],
        )
    )
    if verdict.pivot is None:
        raise NothingToSay(f"the oracle has no verdict: {verdict.why}")
    what = f"The attempt went wrong at turn {verdict.pivot}: {turns[verdict.pivot].action or 'no valid action'}."
    return Written(as_report(what, verdict.cause or verdict.why, "failure", verdict.advice, verdict.pivot))


async def by_hint(about: About, begun: Written) -> Written:
    """Take the hint of `hint_level`, and one level further for each retry of the same base. It names no turn: 0.

    Raises:
        WorldError: the environment failed. NothingToSay: the task has no hint.
    """
    hints = await asyncio.wrap_future(about.explorer.pool.ask_hints(f"{about.name}/hints", about.task))
    if not hints:
        raise NothingToSay("the task has no hint")
    level = min(about.plan.hint_level + about.attempt, len(hints) - 1)
    outcome = "success" if about.episode.trajectory.success else "failure"
    return Written(as_report("", "", outcome, hints[level], 0), level=level)


def as_report(summary: str, cause: str, outcome: str, advice: str, turn: int) -> str:
    """Write a report as the policy would."""
    return json.dumps(report(summary, cause, outcome, advice, turn), ensure_ascii=False)


WRITERS: dict[str, Callable[[About, Written], Awaitable[Written]]] = {
    "policy": by_policy,
    "teacher": by_teacher,
    "oracle": by_oracle,
    "hint": by_hint,
}
