"""An engine and a teacher that answer what is stored. With them the sampling stages run again as they ran: worlds are
played, prompts rendered and replies parsed anew, and only what was sampled is taken as it is."""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TypeVar

from r3l.engines.base import Completion, FinishReason, PolicySnapshot, Sampling
from r3l.engines.chat_format import Message
from r3l.engines.teacher import Taught
from r3l.errors import EngineError
from r3l.records import Reflection, Status, Trajectory, Turn

T = TypeVar("T")
WITHIN = re.compile(r"within (\d+) tokens$")  # the last words of the reason of an attempt that left no room


@dataclass(slots=True)
class Recorded:
    """What was sampled, by the ids of the requests; `ended` says of an attempt, or of a reflection, how it broke off:
    its next request is answered so."""

    context_limit: int
    replies: dict[str, Completion] = field(default_factory=dict)
    ended: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add_attempts(self, trajectories: Iterable[Trajectory], turns: Iterable[Turn]) -> None:
        for turn in turns:
            reply = Completion(turn.response_ids, turn.response_logprobs, turn.finish_reason)  # type: ignore[arg-type]
            self.replies[f"{turn.trajectory_id}/turn={turn.turn}"] = reply
        for one in trajectories:
            self.ended[one.trajectory_id] = one.status, one.reason

    def add_reflections(self, reflections: Iterable[Reflection]) -> None:
        for one in reflections:
            if one.status in (Status.PARSED, Status.INVALID) and one.source == "policy":
                finish = one.finish_reason
                self.replies[one.reflection_id] = Completion(one.response_ids, one.response_logprobs, finish)  # type: ignore[arg-type]
            self.ended[one.reflection_id] = one.status, one.reason

    def complete(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling) -> Future[Completion]:
        """Answer with the stored reply; without one, as the attempt is said to have ended there."""
        if reply := self.replies.get(request_id):
            return future_of(replace(reply, finish_reason=ending(reply, sampling)))
        status, reason = self.ended.get(request_id.partition("/turn=")[0], ("", ""))
        if status == Status.CONTEXT_LIMIT:
            if limit := WITHIN.search(reason):
                self.context_limit = int(limit[1])
            return future_of(Completion([], [], "context"))
        why = reason if status == Status.ENGINE_ERROR else "no reply to this request is stored"
        return failed_future(EngineError(why))

    def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Do nothing: what was sampled is stored."""

    def score(self, token_ids: Sequence[int]) -> list[float]:
        raise EngineError("a recorded engine has no policy: it can't score")

    def counts(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Do nothing: nothing was started."""


@dataclass(slots=True)
class RecordedTeacher:
    """What a teacher wrote, by the ids of the reflections."""

    digest: str
    written: dict[str, Reflection]

    def write(self, request_id: str, messages: Sequence[Message], sampling: Sampling) -> Future[Taught]:
        one = self.written.get(request_id)
        if one is None or one.status == Status.ENGINE_ERROR:
            return failed_future(EngineError(one.reason if one else "no reply of the teacher is stored"))
        finish = "context" if one.status == Status.CONTEXT_LIMIT else one.finish_reason
        counts = one.prompt_tokens, one.response_tokens
        return future_of(
            Taught(one.text, finish, counts, one.context_ids, one.response_ids, one.response_logprobs)  # type: ignore[arg-type]
        )

    def close(self) -> None:
        """Do nothing: nothing was started."""


def ending(reply: Completion, sampling: Sampling) -> FinishReason:
    """Find why a reply ended, by its ids; where they don't tell, as it is stored."""
    if reply.token_ids and reply.token_ids[-1] in sampling.stop_token_ids:
        return "stop"
    return "length" if len(reply.token_ids) >= sampling.max_tokens else reply.finish_reason


def future_of(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def failed_future(error: Exception) -> Future[T]:
    future: Future[T] = Future()
    future.set_exception(error)
    return future
