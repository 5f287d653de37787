"""Access: on loopback everybody on this machine, on other addresses everybody with the key; never a page of another
site."""

import base64
import binascii
import hmac
import ipaddress
import os
from collections.abc import Collection

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
    """Read the key that is asked for at `host`: that of R3L_AUDIT_KEY, which loopback can do without.

    Raises:
        ConfigError: another address than loopback and no key, or one that is too short to keep anybody out.
    """
    key = os.environ.get(KEY, "")
    if not key and is_loopback(host):
        return ""
    if len(key) < SHORTEST:
        raise ConfigError(
            f"--host {host} is open to other machines and {KEY} has {len(key)} characters, expected {SHORTEST} or "
            f"more: set it (`openssl rand -hex 24` makes one), or listen on 127.0.0.1"
        )
    return key


def from_other_site(headers: Headers, origins: Collection[str] = (), following: bool = True) -> bool:
    """Tell whether a page of another site had the browser send this request: by its Origin, else by its fetch
    metadata.

    Args:
        origins: origins whose pages may ask. None of them: pages of the same origin alone, whose GETs carry no Origin.
        following: a link that a person followed to here counts as no request of that page.
    """
    if origin := headers.get("origin"):
        return origin not in origins
    if headers.get("sec-fetch-site", "none") in {"none", "same-origin"}:
        return False
    return not (following and headers.get("sec-fetch-mode") == "navigate")


class RefuseOtherSites:
    """Refuse requests that pages of other sites had the browser send; links to here may be followed."""

    def __init__(self, app: ASGIApp, origins: Collection[str] = ()) -> None:
        self.app = app
        self.origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not from_other_site(Headers(scope=scope), self.origins):
            await self.app(scope, receive, send)
        else:
            await PlainTextResponse("Pages of other sites can't ask here.", 403)(scope, receive, send)


class AskForKey:
    """HTTP's basic authentication, since browsers know how to ask for it. The user's name does not matter."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "lifespan"
            or scope["path"] in OPEN
            or hmac.compare_digest(password_in(Headers(scope=scope)), self.key)
        ):
            await self.app(scope, receive, send)
        else:
            refusal = PlainTextResponse(
                f"The password is the key of {KEY}.", 401, {"WWW-Authenticate": 'Basic realm="r3l audit"'}
            )
            await refusal(scope, receive, send)


def password_in(headers: Headers) -> bytes:
    """Read the password that a request came with; empty where there is none."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""
