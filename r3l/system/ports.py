"""Ports of this machine."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
