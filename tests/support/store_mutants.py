"""Stores with a known fault, for the kill benchmarks: one that sees none of them shows nothing."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from r3l.store.files.local import NONE, LocalFiles
from r3l.store.stage import Store

PAUSE_S = 0.03  # between the manifest and the parts that it names, so that few kills are needed to fall there


def never_found() -> None:
    """The store finds no stage again, so that each start does all the work once more."""
    Store.find = lambda self, key, fingerprint: None  # type: ignore[method-assign]


def manifest_first() -> None:
    """A stage's manifest is written before its parts."""
    put_if = LocalFiles.put_if

    def put_both(
        self: LocalFiles, path: str, content: bytes, token: str | None, parts: Mapping[str, bytes] = NONE
    ) -> bool:
        done = put_if(self, path, content, token)
        for part in parts.items():
            time.sleep(PAUSE_S / len(parts))
            self.put(*part)
        return done

    patched: Any = LocalFiles
    patched.put_if = put_both


MUTANTS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "never_found": never_found,
    "manifest_first": manifest_first,
}
