"""What exploration works with: a world, its worker pool, an engine, a chat format and the limits of an episode."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from r3l.engines.base import Completion, Engine, Sampling
from r3l.engines.chat_format import ChatFormat
from r3l.engines.teacher import Teacher
from r3l.environments.base import World, tools_of
from r3l.exploration.progress import Progress
from r3l.records import Event

T = TypeVar("T")


class Incidents:
    """Noted from any thread; the next sampling stage that is committed takes them into its table."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._noted: list[tuple[str, str, str, str]] = []

    def note(self, event: str, subject_id: str, reason: str, detail: str = "") -> None:
        """Keep one for the next stage. `event` is engine_retry, engine_restarted, worker_restarted or canary."""
        with self._guard:
            self._noted.append((event, subject_id, reason, detail))

    def taken(self, iteration: int, stage: str) -> list[Event]:
        """Take out all that were noted since the last call, as events that `stage` reports, in the order of their
        subjects."""
        with self._guard:
            notes, self._noted = self._noted, []
        return [
            Event(iteration, stage, subject, event, reason, detail) for event, subject, reason, detail in sorted(notes)
        ]


if TYPE_CHECKING:
    from r3l.environments.workers.pool import WorldPool


@dataclass(frozen=True)
class Limits:
    """The numbers of one run that bound an episode; the paper's stand in its section Experimental Setup."""

    max_turns: int
    reply_tokens: int
    temperature: float
    bad_reply: str = "continue"
    malformed_reward: float = 0.0
    reflection_temperature: float = 0.7
    reflection_tokens: int = 4096
    structured_reflections: bool = False
    reflection_context: str = "transcript"


@dataclass(frozen=True)
class Explorer:
    world: World
    pool: WorldPool
    engine: Engine
    chat: ChatFormat
    policy: str  # digest of the behaviour policy
    limits: Limits
    progress: Progress = field(default_factory=Progress)
    incidents: Incidents = field(default_factory=Incidents)
    teacher: Teacher | None = None  # writes the reflections, where the plan's guidance is a teacher's

    def opening(self, observation: str, guidance: str = "") -> list[int]:
        """Render an episode's start as ids: system prompt, guidance where there is any, tools, the first
        observation."""
        system = self.world.system_prompt() + (f"\n\n{guidance}" if guidance else "")
        messages = [{"role": "system", "content": system}, {"role": "user", "content": observation}]
        return self.chat.opening(messages, tools=bool(tools_of(self.world)))

    async def complete(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        *,
        seed: int,
        temperature: float,
        max_tokens: int,
        json_schema: dict[str, Any] | None = None,
    ) -> Completion:
        """Sample one reply. Raise `EngineError` after the engine's own retries."""
        sampling = Sampling(temperature, max_tokens, seed, self.chat.stop_ids, json_schema)
        completion = await asyncio.wrap_future(self.engine.complete(request_id, prompt_ids, sampling))
        if completion.failures:
            self.incidents.note(
                "engine_retry",
                request_id,
                f"{len(completion.failures)} tries failed before this reply",
                "; ".join(completion.failures),
            )
        return completion


def gather_all(attempts: Iterable[Awaitable[T]]) -> list[T]:
    """Await every attempt's records. Where one can't become any (`Interrupted`, `ServerAway`), the others are given up
    and nothing is made."""

    async def all_of_them() -> list[T]:
        return list(await asyncio.gather(*attempts))

    return asyncio.run(all_of_them())
