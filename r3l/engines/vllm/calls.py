"""Calls on an engine's own event loop, of which a caller in another thread holds the future."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_error(call: asyncio.Task[Any]) -> None:
    """Take note of a call's error: where its caller has given it up nobody else does, and asyncio would print it."""
    if not call.cancelled():
        call.exception()
