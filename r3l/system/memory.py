"""Memory of a process: what an iteration has freed goes back to the system, and garbage is looked for less often.

glibc keeps freed blocks in an arena for each of up to eight threads a core. Every iteration starts threads anew and
fills other arenas, so that a process of many iterations would grow by what each of them left free
(`data/PERFORMANCE.md`).
"""

import ctypes
import gc

THRESHOLDS = (50_000, 20, 50)


def give_back() -> None:
    """Give the free pages of every arena to the system. Do nothing where the C library keeps none: only glibc has
    `malloc_trim`."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def collect_less() -> None:
    """Have this process look for cycles less often than by default (700, 10, 10). A fifth of the import of torch,
    transformers and Prefect goes to looking through objects that stay."""
    gc.set_threshold(*THRESHOLDS)
