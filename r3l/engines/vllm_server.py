"""vLLM servers of one policy, used together over HTTP. One event loop in a thread; `complete` returns at once.

A call goes to the server that last had a call of the same task (its prefix cache holds the shared part) unless another
is clearly less busy. A call that fails with its server is tried elsewhere; a server that comes back is given the policy
again before it is used.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

import httpx

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import Completion, PolicySnapshot, Sampling
from r3l.engines.vllm_routes import ServerGone, VllmRoutes
from r3l.errors import EngineError

SLACK = 8  # calls by which the server of a task's earlier calls may be busier than the least busy one
PAUSES = (0.2, 1.0, 3.0, 10.0)  # seconds between tries to win a lost server back


class VllmServer:
    """An `Engine` of one or more vLLM servers.

    Raises:
        EngineError: by `load_policy`, where no server answers or one refuses the policy.
    """

    def __init__(self, settings: VllmServerSettings, policy: PolicySettings) -> None:
        self.settings = settings
        self.policy = policy
        key = os.environ.get(settings.api_key_env, "")
        limits = httpx.Limits(max_connections=settings.connections, max_keepalive_connections=settings.connections)
        self.client = httpx.AsyncClient(timeout=httpx.Timeout(settings.timeout_s, connect=10), limits=limits,
                                        headers={"Authorization": f"Bearer {key}"} if key else {}, trust_env=False)
        self.servers = [VllmRoutes(url.strip(), self.client) for url in settings.urls.split(",") if url.strip()]
        self.snapshot: PolicySnapshot | None = None
        self.totals = dict.fromkeys(
            ("requests", "prompt_tokens", "cached_tokens", "sampled_tokens", "busy_seconds", "retried_calls"), 0.0)
        self._last: dict[str, VllmRoutes] = {}  # server of a task's last call
        self._active = 0
        self._busy_since = 0.0
        self._calls: set[asyncio.Task[Any]] = set()
        self._revivals: set[asyncio.Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(settings.connections)
        self._equipping = {server: asyncio.Lock() for server in self.servers}
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="r3l-vllm", daemon=True)
        self._thread.start()

    def load_policy(self, snapshot: PolicySnapshot) -> None:
        self._submit(self._load(snapshot)).result()

    def complete(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling) -> Future[Completion]:
        return self._submit(self._complete(request_id, list(prompt_ids), sampling))

    def score(self, token_ids: Sequence[int]) -> list[float]:
        return next(iter(self.score_each(token_ids).values()))

    def score_each(self, token_ids: Sequence[int]) -> dict[str, list[float]]:
        """`score` by every server that runs the policy, by address."""
        return self._submit(self._score(list(token_ids))).result()

    @property
    def context_limit(self) -> int:
        lengths = [server.length for server in self.servers if server.length]
        return min([self.policy.context_tokens, *lengths])

    def counts(self) -> dict[str, float]:
        return dict(self.totals)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _submit(self, call: Coroutine[Any, Any, Any]) -> Future[Any]:
        if self._closed:
            call.close()
            failed: Future[Any] = Future()
            failed.set_exception(EngineError("the engine is closed: make a new one"))
            return failed
        return asyncio.run_coroutine_threadsafe(self._watched(call), self._loop)

    async def _watched(self, call: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            raise EngineError("the engine was closed before this call was answered") from None
        finally:
            self._calls.discard(task)

    async def _end(self) -> None:
        calls = [*self._calls, *self._revivals]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)  # the watchers hand their errors on
        await self.client.aclose()

    async def _load(self, snapshot: PolicySnapshot) -> None:
        while self._active:  # calls in flight end under the policy that they began with
            await asyncio.sleep(0.01)
        self.snapshot = snapshot
        self._last.clear()
        for server in self.servers:
            server.equipped = False
        for revival in self._revivals:
            revival.cancel()
        failures = await asyncio.gather(*[self._equip(server) for server in self.servers], return_exceptions=True)
        for failure in failures:
            if isinstance(failure, BaseException) and not isinstance(failure, ServerGone):
                raise failure
        if not any(server.equipped for server in self.servers):
            raise EngineError(f"no server runs the policy {snapshot.path}: {'; '.join(map(str, failures))}. Start one with "
                              "infra/engine/serve.sh and set engine.urls")
        for server in self.servers:
            if not server.equipped:
                self._await_return(server)

    async def _equip(self, server: VllmRoutes) -> None:
        """Raises `ServerGone` while it does not answer."""
        assert self.snapshot is not None
        async with self._equipping[server]:
            if not server.equipped:
                await server.look()
                await server.load(self.snapshot)
                server.equipped = True

    async def _complete(self, request_id: str, prompt: list[int], sampling: Sampling) -> Completion:
        if not prompt:
            raise EngineError(f"{request_id}: got an empty prompt, expected at least one token id")
        if self.snapshot is None:
            raise EngineError("no policy is loaded: call load_policy before complete")
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
            server = await self._choose(request_id)
            server.in_flight += 1
            try:
                return await server.complete(prompt, sampling, limit)
            except ServerGone as error:
                reasons.append(str(error))
                self._lose(server)
            finally:
                server.in_flight -= 1
        raise EngineError(f"{request_id}: no server answered in {self.settings.retries + 1} tries: {'; '.join(reasons[-3:])}")

    async def _choose(self, request_id: str) -> VllmRoutes:
        """A server that runs the policy; where none does, wait until one is back."""
        deadline = time.monotonic() + self.settings.timeout_s
        while not (running := [server for server in self.servers if server.equipped]):
            if time.monotonic() > deadline or not self._revivals:
                raise EngineError(f"{request_id}: no server runs the policy after {self.settings.timeout_s:g} s: "
                                  f"{'; '.join(server.refusal or server.url for server in self.servers)}; restart one")
            await asyncio.sleep(PAUSES[0])
        task = "/".join(request_id.split("/")[:2])
        least = min(running, key=lambda server: server.in_flight)
        last = self._last.get(task, least)
        chosen = last if last.equipped and last.in_flight <= least.in_flight + SLACK else least
        self._last[task] = chosen
        return chosen

    def _lose(self, server: VllmRoutes) -> None:
        """Use it no more; meanwhile try to win it back. What it runs when it is back is not known."""
        server.adapter = ""
        if server.equipped:
            server.equipped = False
            self._await_return(server)

    def _await_return(self, server: VllmRoutes) -> None:
        revival = asyncio.ensure_future(self._revive(server))
        self._revivals.add(revival)
        revival.add_done_callback(self._revivals.discard)

    async def _revive(self, server: VllmRoutes) -> None:
        for attempt in itertools.count():
            await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            try:
                await self._equip(server)
            except ServerGone as error:
                server.refusal = str(error)
            except EngineError as error:
                server.refusal = str(error)
                return
            else:
                return

    async def _score(self, token_ids: list[int]) -> dict[str, list[float]]:
        running = [server for server in self.servers if server.equipped]
        if not running:
            raise EngineError("no server runs a policy: call load_policy before score")
        try:
            scores = await asyncio.gather(*[server.score(token_ids) for server in running])
        except ServerGone as error:
            raise EngineError(f"a server was lost while it scored the canary: {error}") from error
        return {server.url: score for server, score in zip(running, scores, strict=True)}

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
