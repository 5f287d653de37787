"""The contract of an engine: token ids in; ids, log-probabilities and finish reason out. No torch is imported here."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

FinishReason = Literal["stop", "length", "context"]
Note = Callable[[str, str, str, str], None]  # an event, its subject, the reason, details


AS_DUMPED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Blanks as json.dumps writes them: with free blanks a weak policy fills its reply with them."""


def with_blanks(schema: dict[str, Any]) -> dict[str, Any]:
    """Put blanks into `schema` only where json.dumps writes them, in the words of llguidance (vLLM's backend `guidance`
    too)."""
    return schema | {"x-guidance": AS_DUMPED}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one reply. `seed` makes it repeatable where the engine allows; temperature 0 is greedy."""

    temperature: float
    max_tokens: int
    seed: int
    stop_token_ids: tuple[int, ...]
    json_schema: dict[str, Any] | None = None  # constrain the reply to this schema, where the setting asks for it


@dataclass(frozen=True, slots=True)
class Completion:
    """`token_ids` hold the sampled stop token where `finish_reason` is "stop"; `logprobs` are of the unscaled
    distribution (temperature 1), one a token."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason
    cached_tokens: int = 0  # prompt tokens that were not computed again
    failures: tuple[str, ...] = ()  # why earlier tries of this call came to nothing, in their order


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """A policy on disk: a transformers folder, or a peft adapter on top of `base_path`. `digest` names its content."""

    path: str
    digest: str
    base_path: str | None = None
    place: str = ""  # its folder in the store, for hosts that pull it from there

    @property
    def model_path(self) -> str:
        """The folder of the whole model: of config, tokenizer and template, and of an adapter's base."""
        return self.base_path or self.path


class Engine(Protocol):
    """One or more servers of one policy. `complete` may be called from many threads at once."""

    def load_policy(self, snapshot: PolicySnapshot) -> None: ...

    def complete(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling) -> Future[Completion]:
        """Sample a reply to each prompt. `request_id` is the one id used everywhere, e.g.
        ``iteration=3/task=17/base=2/turn=5``.

        Raises (by the future):
            EngineError: after the engine's own retries are spent.
            Interrupted: the engine was closed, before this call or while it waited.
            ServerAway: none of the engine's servers answers.
        """
        ...

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Score token_ids[1:] given everything before each: what the canary compares with the trainer."""
        ...

    @property
    def context_limit(self) -> int: ...

    def counts(self) -> dict[str, float]:
        """Report the running totals: requests, prompt_tokens, cached_tokens, sampled_tokens, busy_seconds,
        retried_calls."""
        ...

    def close(self) -> None:
        """End the engine. Every call in flight and every later one fails with `Interrupted`, so that none becomes a
        row."""
        ...


@runtime_checkable
class Replicated(Protocol):
    """An engine of several servers, each of which the canary has to check."""

    def score_each(self, token_ids: Sequence[int]) -> dict[str, list[float]]:
        """Score as `Engine.score` does, by every server, by its name."""
        ...


@runtime_checkable
class Sleeping(Protocol):
    """An engine that can free its GPU for an update on the same host."""

    def sleep(self) -> None:
        """Free the GPU's memory, where the settings ask for that, until the next `load_policy`.

        Raises:
            EngineError: it can't.
        """
        ...


@runtime_checkable
class Hosting(Protocol):
    """An engine that runs servers of its own."""

    def attach(self, folder: Path, note: Note) -> None:
        """Keep the logs of its servers in `folder` from the next start on, and call `note` for each restart."""
        ...
