"""Attacks on the lock of an iteration: lies in its file, and takers at the same time."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from r3l.errors import StoreError
from r3l.store.files import process
from r3l.store.stage import Store
from tests.attacks.outcomes import Outcomes, refusal
from tests.unit.test_store_lock import BOOT, HOLDER, dead_mark

ELSEWHERE = f"elsewhere~{BOOT}~4026531836~17~99.0"


def mine(part: int) -> str:
    """The mark of this process, but for one part that makes it another one."""
    parts = process.mark().split("~")
    parts[part] = "another"
    return "~".join(parts)


def lies() -> Iterator[tuple[str, dict[str, Any] | bytes, bool]]:
    """(what the file says, its content, whether the lock is free then)."""
    now = time.time()
    yield "a dead process of this machine", {"process": dead_mark()}, True
    yield "a process number given out again", {"process": f"{process.mark().rpartition('~')[0]}~1.0"}, True
    yield "this process", {"process": process.mark()}, False
    for age, free in ((0, False), (299, False), (301, True), (-30, False), (-90, True), (-86_400, True)):
        yield f"another host, renewed {age} s ago", {"renewed": now - age}, free
    for part, name in ((0, "host"), (1, "boot"), (2, "pid namespace")):
        yield f"another {name}, renewed now", {"process": mine(part)}, False
        yield f"another {name}, lease over", {"process": mine(part), "renewed": now - 301}, True
    wrong: dict[str, tuple[Any, ...]] = {
        "process": (3, None, ["a"], {}),
        "since": (3, None),
        "renewed": ("soon", None, True, [1], float("nan"), float("inf")),
    }
    for name, values in wrong.items():
        yield from ((f"{name} = {value!r}", {name: value}, True) for value in values)
    for content in (b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"process": 3}'):
        yield f"{content!r:.20}", content, True


def lock_lies(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """A lock that lies: free where nobody can hold it, and refused with a clear error where somebody may."""
    honest = {"process": ELSEWHERE, "nonce": "n", "since": "2026-01-01T00:00:00+00:00", "renewed": time.time()}
    for number, (what, content, free) in enumerate(lies()):
        store = Store.open(str(folder / str(number)))
        path = Path(store.root, "demo/iteration=00003/writer.lock")
        path.parent.mkdir(parents=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(honest | content).encode())
        with outcomes.attempt(what):
            try:
                with store.writer_lock("demo", "", 3):
                    taken = True
            except StoreError:
                taken = False
            assert taken is free, "taken from a holder" if taken else "held by nobody, and not given"


def takers(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Eight takers at the same moment: one of them writes."""
    for number in range(tries):
        store, inside, most = Store.open(str(folder / str(number))), list[int](), list[int]()

        def write(who: int, store: Store = store, inside: list[int] = inside, most: list[int] = most) -> None:
            try:
                with store.writer_lock("demo", "", 3):
                    inside.append(who)
                    most.append(len(inside))
                    time.sleep(0.02)
                    inside.remove(who)
            except StoreError:
                return

        with outcomes.attempt(f"round {number}"), ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
            assert max(most, default=0) == 1, f"{max(most, default=0)} writers at once"
    with outcomes.attempt("a process that is killed"):
        refused_while_held(Store.open(str(folder / "process")))


def refused_while_held(store: Store) -> None:
    """Another process holds the lock: refused, naming its number; killed, it holds nothing."""
    command = [sys.executable, "-c", HOLDER, store.root]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()}
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            assert f"process {child.pid}" in refusal(lambda: take(store)), "the holder is not named"
        finally:
            child.kill()
            child.wait()
    take(store)


def take(store: Store) -> None:
    """Have the lock for a moment. Raises StoreError where it is held."""
    with store.writer_lock("demo", "", 3):
        pass
