"""Memory that an iteration has freed goes back to the system.

glibc keeps freed blocks in an arena for each of up to eight threads a core. Every iteration starts threads anew and
fills other arenas, so that a process of many iterations would grow by what each of them left free
(`data/PERFORMANCE.md`).
"""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Return the free pages of every arena. Do nothing where the C library keeps none: only glibc has `malloc_trim`."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
