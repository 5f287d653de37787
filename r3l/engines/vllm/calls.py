"""Calls on an engine's own event loop, of which a caller in another thread holds the future."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_error(call: asyncio.Task[Any]) -> None:
    """Note a call's error. If its caller has given up, nobody else reads it, and asyncio would print it."""
    if not call.cancelled():
        call.exception()
