"""Memory that a process does not go through: while it imports, and as it ends."""

from __future__ import annotations

import atexit
import gc
import os
import sys

THRESHOLDS = (50_000, 20, 50)


def collect_less() -> None:
    """Have this process look for cycles less often than by default (700, 10, 10). A fifth of the import of torch,
    transformers and Prefect goes to looking through objects that stay."""
    gc.set_threshold(*THRESHOLDS)


class Leaving:
    """Ends the process once all else is done that is done at its exit, without freeing memory object by object, which
    takes a second or two after an import of torch and Prefect.

    It is made before the imports: what they have done at the exit is done before it.
    """

    def __init__(self) -> None:
        self.well = False  # whether the process ends with exit status 0
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.well:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
