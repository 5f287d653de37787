"""Processes by name: which one is it, and does it still live?"""

from __future__ import annotations

import os
import socket
from pathlib import Path


def mark(pid: int | None = None) -> str:
    """``host~pid~start`` of a process (None: this one): not given to any later process, of the same number either."""
    pid = os.getpid() if pid is None else pid
    return f"{socket.gethostname()}~{pid}~{started(pid)}"


def lives(mark_: str) -> bool | None:
    """Whether the process of a mark lives; None where that can't be known from here (another host, another form)."""
    host, _, rest = mark_.partition("~")
    pid, _, start = rest.partition("~")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return bool(start) and started(int(pid)) == start


def started(pid: int) -> str:
    """When a process was started, in the kernel's ticks since boot; empty where there is none (a zombie counts as none)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else running(pid)
    after_name = stat.rpartition(")")[2].split()
    return "" if after_name[0] == "Z" else after_name[19]


def running(pid: int) -> str:
    """Where the system has no /proc: only whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return ""
    except PermissionError:
        return "running"
    return "running"
