"""The vLLM servers of one policy: which of them run it, which one gets the next call, which one is lost or back again.

A server is lost when a call fails with it or when it misses its health checks; its calls are then made elsewhere. It is
given the policy again before it is used again. An address ``dns://NAME:PORT`` stands for every server that the name
resolves to, now and later.
"""

import asyncio
import itertools
import logging
import socket
import time
from urllib.parse import urlsplit

from r3l.config.engines import VllmServerSettings
from r3l.engines.base import PolicySnapshot
from r3l.engines.vllm.http_clients import HttpClients
from r3l.engines.vllm.routes import ServerGone, VllmRoutes
from r3l.errors import EngineError, ServerAway

SLACK = 8  # calls by which the server of a task's earlier calls may be busier than the least busy one
PAUSES = (0.2, 1.0, 3.0, 10.0)  # seconds between tries to win a lost server back
MISSES = 3  # health checks in a row
log = logging.getLogger("r3l.engines")


class VllmFleet:
    """The fleet of servers. Everything runs in one event loop; only loading a policy needs locks."""

    def __init__(self, settings: VllmServerSettings, client: HttpClients) -> None:
        self.settings, self.client = settings, client
        entries = [url.strip() for url in settings.urls.split(",") if url.strip()]
        self.names = [entry for entry in entries if entry.startswith("dns://")]
        self.servers = [self._server(url) for url in entries if url not in self.names]
        self.snapshot: PolicySnapshot | None = None
        self.asleep = False
        self.revivals: dict[VllmRoutes, asyncio.Future[None]] = {}
        self._last: dict[str, VllmRoutes] = {}  # server of a task's last call
        self._equipping: dict[VllmRoutes, asyncio.Lock] = {}

    @property
    def healthy(self) -> list[VllmRoutes]:
        return [server for server in self.servers if server.equipped]

    async def load(self, snapshot: PolicySnapshot) -> None:
        """Give every server the policy. Raise `EngineError` where none takes it, or one refuses it."""
        self.snapshot = snapshot
        self._use_none()
        await self._discover()
        self.asleep = False
        # all at once, and each to its end: one that is away must not keep the others from the policy
        failures = await asyncio.gather(
            *[self._equip(server, self.settings.adopt) for server in self.servers], return_exceptions=True
        )
        for failure in failures:
            if isinstance(failure, BaseException) and not isinstance(failure, ServerGone):
                raise failure
        if not self.healthy:
            raise EngineError(
                f"no server runs the policy {snapshot.path}: {'; '.join(map(str, failures)) or self.settings.urls}. "
                "Start one with infra/engine/serve.sh and set engine.urls"
            )
        for server in self.servers:
            if not server.equipped:
                self._await_return(server)

    async def sleep(self, level: int) -> None:
        """Let every server sleep until the next `load`. Raise `EngineError` if one does not."""
        self._use_none()
        self.asleep = True
        await asyncio.gather(*[server.sleep(level) for server in self.servers])

    async def choose(self, request_id: str) -> VllmRoutes:
        """Choose the server of the task's last call (its prefix cache holds the shared part), or the least busy one
        where that is clearly less so. Where none runs the policy, wait until one is back. Raise `ServerAway` after
        `timeout_s`."""
        deadline = time.monotonic() + self.settings.timeout_s
        while not (healthy := self.healthy):
            if time.monotonic() > deadline or not (self.revivals or self.names):
                duration = f" after {self.settings.timeout_s:g} s" if time.monotonic() > deadline else ""
                raise ServerAway(
                    f"{request_id}: no server runs the policy{duration}: "
                    f"{'; '.join(server.refusal or server.url for server in self.servers)}; restart one"
                )
            await asyncio.sleep(PAUSES[0])
        task = "/".join(request_id.split("/")[:2])
        least = min(healthy, key=lambda server: server.in_flight)
        last = self._last.get(task, least)
        best = last if last.equipped and last.in_flight <= least.in_flight + SLACK else least
        self._last[task] = best
        return best

    def lose(self, server: VllmRoutes) -> None:
        """Stop using the server and try to reach it again. Which policy it then runs is unknown. Its other calls may
        still be answered."""
        server.adapter = ""
        if server.equipped:
            server.equipped = False
            self._await_return(server)

    def give_up(self, server: VllmRoutes, refusal: str) -> None:
        """Stop trying to reach a lost server."""
        server.refusal = refusal
        if revival := self.revivals.pop(server, None):
            revival.cancel()

    async def watch(self) -> None:
        """Check every `health_s` seconds which servers answer and which are new."""
        while True:
            await asyncio.sleep(self.settings.health_s)
            if self.snapshot is not None and not self.asleep:
                await asyncio.gather(*[self._check(server) for server in self.healthy])
                await self._discover()

    async def _check(self, server: VllmRoutes) -> None:
        try:
            await server.ask("GET", "/health", timeout=self.settings.health_s)
        except (ServerGone, EngineError) as error:
            server.missed += 1
            if server.missed >= MISSES and server.equipped:
                log.warning("%s missed %d health checks: its calls go elsewhere", server.url, server.missed)
                server.refusal = str(error)
                self.lose(server)
                for call in server.calls:
                    call.cancel()  # nobody answers there: they are made elsewhere
        else:
            server.missed = 0

    async def _discover(self) -> None:
        """Take in servers that a name resolves to by now, and let go of lost ones that it does not any more."""
        if not self.names:
            return
        urls: set[str] = set()
        for name in self.names:
            urls |= await self.resolve(name)
        for url in sorted(urls - {server.url for server in self.servers}):
            server = self._server(url)
            self.servers.append(server)
            if self.healthy:  # else the load that is under way gives it the policy
                self._await_return(server)
        for server in [
            server for server in self.servers if server.named and not server.equipped and server.url not in urls
        ]:
            self.servers.remove(server)
            if revival := self.revivals.pop(server, None):
                revival.cancel()

    async def resolve(self, name: str) -> set[str]:
        """Resolve the addresses behind a name, as Kubernetes' headless services have them; none while it is unknown."""
        at = urlsplit(name)
        try:
            addresses = await asyncio.get_running_loop().getaddrinfo(at.hostname, at.port, type=socket.SOCK_STREAM)
        except OSError:
            return set()
        hosts = {str(address[0]) for *_, address in addresses}
        return {f"http://[{host}]:{at.port}" if ":" in host else f"http://{host}:{at.port}" for host in hosts}

    def _server(self, url: str) -> VllmRoutes:
        server = VllmRoutes(url, self.client, self.settings.puller_port)
        server.named = bool(self.names) and not any(
            server.url == entry.strip().rstrip("/") for entry in self.settings.urls.split(",")
        )
        return server

    async def _equip(self, server: VllmRoutes, adopt: bool) -> None:
        """Give the server the policy, if it does not run it yet. Raise `ServerGone` while it does not answer."""
        assert self.snapshot is not None
        # a load and a revival may come to the same server at once: the second finds it equipped
        async with self._equipping.setdefault(server, asyncio.Lock()):
            if not server.equipped:
                await server.look()
                if not (adopt and not server.asleep and server.adopts(self.snapshot)):
                    await server.load(self.snapshot)
                server.equipped, server.missed = True, 0

    def _use_none(self) -> None:
        self._last.clear()
        for revival in self.revivals.values():
            revival.cancel()
        self.revivals.clear()
        for server in self.servers:
            server.equipped = False

    def _await_return(self, server: VllmRoutes) -> None:
        revival = asyncio.ensure_future(self._revive(server))
        self.revivals[server] = revival
        revival.add_done_callback(lambda done: self.revivals.pop(server) if self.revivals.get(server) is done else None)

    async def _revive(self, server: VllmRoutes) -> None:
        for attempt in itertools.count():
            await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            try:
                await self._equip(server, adopt=False)
            except ServerGone as error:
                server.refusal = str(error)
            except EngineError as error:
                server.refusal = str(error)
                return
            else:
                return
