"""Hosts of a small network on one machine: network namespaces on a bridge, each with its own address and name. Needs
root and iproute2."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

BRIDGE, NETWORK = "r3lbr0", "10.213.7"
HOSTS = "hosts"  # everybody's names, as a network's name server or a container's engine would know them


class Host:
    """One namespace. Its processes see its name, its address and nothing else of the machine's network."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        self.name, self.address, self.folder = name, f"{NETWORK}.{number}", folder
        self.space, self.wire = f"r3l-{name}", f"r3lv{number}"
        ip("netns", "add", self.space)
        ip("link", "add", self.wire, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        ip("link", "set", self.wire, "master", BRIDGE, "up")
        for words in (
            ("addr", "add", f"{self.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", self.space, *words)

    def start(self, log: str, *command: str, user: str = "", **variables: str) -> subprocess.Popen[bytes]:
        """A process there, in a group of its own; what it says goes to ``<log>.log``."""
        as_user = ["runuser", "-u", user, "--"] if user else []
        hosts = self.folder / HOSTS
        named = [
            "unshare",
            "--uts",
            "--mount",
            "sh",
            "-c",
            f'hostname {self.name}; mount --bind {hosts} /etc/hosts; exec "$@"',
            "sh",
        ]
        words = ["ip", "netns", "exec", self.space, *named, *as_user, *command]
        with (self.folder / f"{log}.log").open("a") as said:
            return subprocess.Popen(
                words, stdout=said, stderr=said, start_new_session=True, env=os.environ | dict(variables)
            )

    def pids(self) -> list[int]:
        listed = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in listed.split()]

    def kill(self) -> int:
        """SIGKILL everything there at once, as when the power goes; how many processes it were."""
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def cut(self, seconds: float) -> None:
        """Take the wire out for a while."""
        ip("link", "set", self.wire, "down")
        time.sleep(seconds)
        ip("link", "set", self.wire, "up")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def network(folder: Path, names: list[str], variables: Mapping[str, str] | None = None) -> Iterator[dict[str, Host]]:
    """Hosts by name on one bridge, which this process is on too; all is taken down in the end."""
    hosts: dict[str, Host] = {}
    ip("link", "add", BRIDGE, "type", "bridge")
    try:
        ip("addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, name in enumerate(names, 2):
            hosts[name] = Host(name, number, folder)
        lines = [f"{host.address} {host.name}" for host in hosts.values()]
        (folder / HOSTS).write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        yield hosts
    finally:
        for host in hosts.values():
            host.kill()
            ip("link", "del", host.wire)  # else it stays until the last process there is gone
            ip("netns", "del", host.space)
        ip("link", "del", BRIDGE)
