"""Marks of processes: which process is it, and does it still live?"""

import os
import socket
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil

BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/pid")
CLOCK_S = 1.5  # seconds by which two readings of the same start may differ: the kernel rounds the time of its boot


@dataclass(frozen=True, slots=True)
class Mark:
    """A process, identified beyond its number, which is reused and also exists in other pid namespaces."""

    host: str
    boot: str  # the kernel's boot id; empty where the system has none
    namespace: str  # the pid namespace; empty where the system has none
    pid: int
    start: float  # seconds from the boot to its start

    def __str__(self) -> str:
        return "~".join(str(part) for part in astuple(self))


def mark(pid: int | None = None) -> str:
    """Write ``host~boot~namespace~pid~start`` of a process of this pid namespace; None: of this process."""
    pid = os.getpid() if pid is None else pid
    return str(Mark(*here(), pid, start_time(pid) or 0.0))


def read(mark_: str) -> Mark | None:
    """Parse a mark; None for a text that is no mark."""
    try:
        host, boot, namespace, pid, start = mark_.split("~")
        return Mark(host, boot, namespace, int(pid), float(start))
    except ValueError:
        return None


def lives(mark_: str) -> bool | None:
    """Tell whether the process of a mark lives; None where that can't be seen from here: another host, boot or pid
    namespace."""
    process = read(mark_)
    if process is None or (process.host, process.boot, process.namespace) != here():
        return None
    start = start_time(process.pid)
    return start is not None and abs(start - process.start) < CLOCK_S


def start_time(pid: int) -> float | None:
    """Measure the seconds from the boot to a process's start; None where there is no such process (a zombie counts as
    none)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        since_boot: float = process.create_time() - psutil.boot_time()  # not moved when the clock is set
        return round(since_boot, 2)
    except (psutil.Error, ValueError, OverflowError):
        return None


def here() -> tuple[str, str, str]:
    """Name the host, boot id and pid namespace of this process."""
    boot = BOOT.read_text().strip() if BOOT.exists() else ""
    return socket.gethostname(), boot, str(NAMESPACE.stat().st_ino) if NAMESPACE.exists() else ""
