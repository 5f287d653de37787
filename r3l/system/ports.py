"""Ports of this machine."""

import socket

from r3l.errors import ConfigError


def free_port() -> int:
    """Find a port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def refuse_taken(port: int, host: str = "127.0.0.1") -> None:
    """Raise `ConfigError` where no server can listen at this address."""
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a closed one's port is free
            probe.bind(address)
    except OSError as error:
        raise ConfigError(f"port {port} of {host}: {error.strerror}; choose another port or host") from error
