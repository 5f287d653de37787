"""The key of a vLLM server, asked for on every route: vLLM's own option guards /v1 and leaves open the routes that load
weights.

Loaded by serve.py (``--middleware require_key.RequireKey``); the key is that of R3L_ENGINE_KEY. Needs nothing but
Python.
"""

from __future__ import annotations

import hmac
import os
from typing import Any

OPEN = frozenset({"/health"})  # for probes; its answer is empty
REFUSAL = b'{"error": "this server asks for the key of R3L_ENGINE_KEY as a bearer token"}'


class RequireKey:
    """An ASGI middleware. Raises ValueError where R3L_ENGINE_KEY is not set, so that a server never starts open by
    mistake."""

    def __init__(self, app: Any) -> None:
        key = os.environ.get("R3L_ENGINE_KEY")
        if not key:
            raise ValueError("R3L_ENGINE_KEY is not set: this server asks for a key and has none")
        self.app = app
        self.expected = f"Bearer {key}".encode()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN or self.knows(scope["headers"]):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": REFUSAL})
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    def knows(self, headers: list[tuple[bytes, bytes]]) -> bool:
        token = dict(headers).get(b"authorization", b"")
        return hmac.compare_digest(token, self.expected)
