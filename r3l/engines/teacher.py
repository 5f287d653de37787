"""Another model that writes reflections: a policy's folder on an engine of its own, or a model that a server has.

Text in, text out: a teacher's tokens need not be the policy's.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from r3l.engines.base import Completion, Engine, FinishReason, Sampling
from r3l.engines.chat_format import ChatFormat, Message


@dataclass(frozen=True, slots=True)
class Taught:
    """What a teacher wrote. The ids are empty where its tokens are not the policy's. `counts`: of its own tokens, read
    and sampled, None where its server does not say."""

    text: str
    finish_reason: FinishReason
    counts: tuple[int | None, int | None]
    context_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Teacher(Protocol):
    """`digest` names it in the identity of what it writes, and in the rows."""

    digest: str

    def write(self, request_id: str, messages: Sequence[Message], sampling: Sampling) -> Future[Taught]:
        """Write a reply to a conversation. `sampling.stop_token_ids` is the teacher's own business.

        Raises (by the future):
            EngineError: after the tries are spent. ServerAway: its server does not answer.
            Interrupted: the teacher was closed.
        """
        ...

    def close(self) -> None: ...


class PolicyTeacher:
    """A policy's folder, sampled by an engine of its own. `same_tokens`: its tokenizer is that of the policy which is
    taught."""

    def __init__(self, engine: Engine, chat: ChatFormat, digest: str, same_tokens: bool) -> None:
        self.engine, self.chat, self.digest, self.same_tokens = engine, chat, digest, same_tokens

    def write(self, request_id: str, messages: Sequence[Message], sampling: Sampling) -> Future[Taught]:
        context = self.chat.opening(messages)
        own = Sampling(
            sampling.temperature, sampling.max_tokens, sampling.seed, self.chat.stop_ids, sampling.json_schema
        )
        delivery: Future[Taught] = Future()

        def deliver(call: Future[Completion]) -> None:
            if (error := call.exception()) is not None:
                delivery.set_exception(error)
            else:
                delivery.set_result(self._taught(context, call.result()))

        self.engine.complete(request_id, context, own).add_done_callback(deliver)
        return delivery

    def _taught(self, context: list[int], reply: Completion) -> Taught:
        text = self.chat.text(reply.token_ids)
        counts = len(context), len(reply.token_ids)
        if not self.same_tokens:
            return Taught(text, reply.finish_reason, counts)
        return Taught(text, reply.finish_reason, counts, context, reply.token_ids, reply.logprobs)

    def close(self) -> None:
        self.engine.close()


def served_digest(model: str) -> str:
    """Make the digest of a model that a server has: its name is all that is known of it."""
    return f"served:{model}"
