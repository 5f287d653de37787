"""Who may look: on loopback whoever is on this machine, on any other address whoever has the key."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import os

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from r3l.errors import ConfigError

HOSTS = ["127.0.0.1", "localhost", "[::1]"]
KEY = "R3L_AUDIT_KEY"
OPEN = frozenset({"/health"})
SHORTEST = 16


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_for(host: str) -> str:
    """The key that is asked for at `host`: that of R3L_AUDIT_KEY, which loopback can do without.

    Raises:
        ConfigError: another address than loopback and no key, or one that is too short to keep anybody out.
    """
    key = os.environ.get(KEY, "")
    if not key and is_loopback(host):
        return ""
    if len(key) < SHORTEST:
        raise ConfigError(f"--host {host} is open to other machines and {KEY} has {len(key)} characters, expected {SHORTEST} or more: "
                          f"set it (`openssl rand -hex 24` makes one), or listen on 127.0.0.1")
    return key


class AskForKey:
    """HTTP's basic authentication, since browsers know how to ask for it. The user's name does not matter."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN or hmac.compare_digest(given(Headers(scope=scope)), self.key):
            await self.app(scope, receive, send)
        else:
            refusal = PlainTextResponse(f"The password is the key of {KEY}.", 401, {"WWW-Authenticate": 'Basic realm="r3l audit"'})
            await refusal(scope, receive, send)


def given(headers: Headers) -> bytes:
    """The password that a request came with; empty where there is none."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""
