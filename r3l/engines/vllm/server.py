"""vLLM servers of one policy, used together over HTTP. One event loop in a thread; `complete` returns at once.

A call that fails with its server is made again by another: which one, and what becomes of the server, is the fleet's
business.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import httpx

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import Completion, PolicySnapshot, Sampling
from r3l.engines.vllm.fleet import VllmFleet
from r3l.engines.vllm.http_clients import HttpClients
from r3l.engines.vllm.routes import ServerGone
from r3l.errors import EngineError, Interrupted

log = logging.getLogger("r3l.engines")


class VllmServer:
    """An `Engine` of one or more vLLM servers.

    Raises:
        EngineError: by `load_policy`, where no server answers or one refuses the policy.
    """

    def __init__(self, settings: VllmServerSettings, policy: PolicySettings, key: str = "") -> None:
        """`key`: the servers' own; empty: that of the environment."""
        self.settings = settings
        self.policy = policy
        key = key or os.environ.get(settings.api_key_env, "")
        self.client = HttpClients(
            settings.connections,
            timeout=httpx.Timeout(settings.timeout_s, connect=10),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            trust_env=False,
        )
        self.fleet = VllmFleet(settings, self.client)
        self.totals = dict.fromkeys(
            ("requests", "prompt_tokens", "cached_tokens", "sampled_tokens", "busy_seconds", "retried_calls"), 0.0
        )
        self._active = 0
        self._busy_since = 0.0
        self._calls: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(settings.connections)
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="r3l-vllm", daemon=True)
        self._thread.start()
        self._watch = asyncio.run_coroutine_threadsafe(self.fleet.watch(), self._loop)

    def load_policy(self, snapshot: PolicySnapshot) -> None:
        self._submit(self._load(snapshot)).result()

    def sleep(self) -> None:
        """Do as `Sleeping.sleep` says: nothing if `engine.sleep` is 0 or no policy was loaded."""
        if self.settings.sleep:
            self._submit(self._sleep()).result()

    def complete(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling) -> Future[Completion]:
        return self._submit(self._complete(request_id, list(prompt_ids), sampling))

    def score(self, token_ids: Sequence[int]) -> list[float]:
        return next(iter(self.score_each(token_ids).values()))

    def score_each(self, token_ids: Sequence[int]) -> dict[str, list[float]]:
        """Score by every server that runs the policy, by address."""
        scores: dict[str, list[float]] = self._submit(self._score(list(token_ids))).result()
        return scores

    @property
    def context_limit(self) -> int:
        lengths = [server.length for server in self.fleet.servers if server.length]
        return min([self.policy.context_tokens, *lengths])

    def counts(self) -> dict[str, float]:
        return dict(self.totals)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self.fleet.asleep and self.wakes_at_end():
                asyncio.run_coroutine_threadsafe(self._wake(), self._loop).result()
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def wakes_at_end(self) -> bool:
        """Tell whether servers that sleep are woken when the engine closes."""
        return True

    def _submit(self, call: Coroutine[Any, Any, Any]) -> Future[Any]:
        if self._closed:
            call.close()
            refusal: Future[Any] = Future()
            refusal.set_exception(Interrupted("the engine is closed: make a new one"))
            return refusal
        return asyncio.run_coroutine_threadsafe(self._watched(call), self._loop)

    async def _watched(self, call: Coroutine[Any, Any, Any]) -> Any:
        if (outer := asyncio.current_task()) is not None:
            outer.add_done_callback(retrieve_error)
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted("the engine was closed before this call was answered") from None
        finally:
            self._calls.discard(task)

    async def _end(self) -> None:
        self._watch.cancel()
        calls = [*self._calls, *self.fleet.revivals.values()]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)  # the watchers hand their errors on
        await self.client.aclose()

    async def _load(self, snapshot: PolicySnapshot) -> None:
        await self._quiet()
        await self.fleet.load(snapshot)

    async def _sleep(self) -> None:
        await self._quiet()
        if self.fleet.snapshot is not None:
            await self.fleet.sleep(self.settings.sleep)

    async def _wake(self) -> None:
        assert self.fleet.snapshot is not None
        try:
            await self.fleet.load(self.fleet.snapshot)
        except EngineError as error:
            log.warning("the servers were not woken: %s", error)

    async def _quiet(self) -> None:
        """Wait until no call is in flight: each ends under the policy that it began with."""
        while self._active:
            await asyncio.sleep(0.01)

    async def _complete(self, request_id: str, prompt: list[int], sampling: Sampling) -> Completion:
        if not prompt:
            raise EngineError(f"{request_id}: got an empty prompt, expected at least one token id")
        if self.fleet.snapshot is None:
            raise EngineError("no policy is loaded: call load_policy before complete")
        if self.fleet.asleep:
            raise EngineError(f"{request_id}: the servers sleep: call load_policy before complete")
        limit = self.context_limit
        if len(prompt) >= limit:
            return Completion([], [], "context")
        async with self._room:
            self._enter()
            try:
                reply = await self._tried(request_id, prompt, sampling, limit)
            finally:
                self._leave()
        self._count(prompt, reply)
        return reply

    async def _tried(self, request_id: str, prompt: list[int], sampling: Sampling, limit: int) -> Completion:
        reasons: list[str] = []
        for attempt in range(self.settings.retries + 1):
            self.totals["retried_calls"] += attempt > 0
            server = await self.fleet.choose(request_id)
            call = asyncio.ensure_future(server.complete(prompt, sampling, limit))
            server.calls.add(call)
            try:
                return replace(await call, failures=tuple(reasons))
            except ServerGone as error:
                reasons.append(str(error))
                self.fleet.lose(server)
            except asyncio.CancelledError:
                if not call.cancelled() or _cancelling():
                    raise
                reasons.append(server.refusal)  # the fleet lost the server, and ended its calls
            finally:
                call.cancel()
                server.calls.discard(call)
        # where none comes back, the servers are away, and this request is not at fault
        await self.fleet.choose(request_id)
        raise EngineError(
            f"{request_id}: no server answered in {self.settings.retries + 1} tries: {'; '.join(reasons[-3:])}"
        )

    async def _score(self, token_ids: list[int]) -> dict[str, list[float]]:
        healthy = self.fleet.healthy
        if not healthy:
            raise EngineError("no server runs a policy: call load_policy before score")
        try:
            scores = await asyncio.gather(*[server.score(token_ids) for server in healthy])
        except ServerGone as error:
            raise EngineError(f"a server was lost while it scored the canary: {error}") from error
        return {server.url: score for server, score in zip(healthy, scores, strict=True)}

    def _enter(self) -> None:
        self._active += 1
        if self._active == 1:
            self._busy_since = time.perf_counter()

    def _leave(self) -> None:
        self._active -= 1
        if self._active == 0:
            self.totals["busy_seconds"] += time.perf_counter() - self._busy_since

    def _count(self, prompt: list[int], reply: Completion) -> None:
        self.totals["requests"] += 1
        self.totals["prompt_tokens"] += len(prompt)
        self.totals["cached_tokens"] += reply.cached_tokens
        self.totals["sampled_tokens"] += len(reply.token_ids)


def _cancelling() -> bool:
    """Tell whether the caller itself is being cancelled, rather than the call that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def retrieve_error(call: asyncio.Task[Any]) -> None:
    """Note a call's error. If its caller has given up, nobody else reads it, and asyncio would print it."""
    if not call.cancelled():
        call.exception()
