"""Many HTTP connections at a low price: httpx looks through all connections of a client for each request, so there are
several."""

import asyncio
import itertools
from typing import Any

import httpx

SHARE = 16  # connections in use by one client: with 256 in one, a call costs twice the processor's time


class HttpClients:
    """What `httpx.AsyncClient.request` and `aclose` are, over as many clients as `connections` need, taken in turns."""

    def __init__(self, connections: int, **options: Any) -> None:
        # how many are in use is the caller's business
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        verify = httpx.create_ssl_context()  # read once: it takes longer than all the rest
        self.clients = [
            httpx.AsyncClient(limits=limits, verify=verify, **options) for _ in range(-(-connections // SHARE))
        ]
        self._turn = itertools.cycle(self.clients)

    async def request(self, method: str, address: str, **options: Any) -> httpx.Response:
        return await next(self._turn).request(method, address, **options)

    async def aclose(self) -> None:
        await asyncio.gather(*[client.aclose() for client in self.clients])
