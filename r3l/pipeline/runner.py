"""How stages are run: as plain calls one after another, on threads side by side, or (flows/tasks.py) as Prefect
tasks."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

from r3l.errors import Interrupted

STAYS = "what is committed stays, and the next start goes on from there"
MAX_THREADS = 256  # most of them wait for an engine or a world
HEED_S = 0.5  # Ctrl-C and SIGTERM are heard within this time by who waits for a stage


class Coming(Protocol):
    """What `Runner.submit` gives: the future of a stage. Futures may be arguments of later stages."""

    def result(self) -> Any: ...

    def add_done_callback(self, fn: Callable[[Any], None], /) -> None: ...


F = TypeVar("F", bound=Coming)


def waited_for(future: F) -> F:
    """Wait until a stage has ended, in turns: a signal that comes just as the main thread begins to wait for a lock is
    not heard before that wait ends."""
    over = threading.Event()
    future.add_done_callback(lambda _: over.set())
    while not over.wait(HEED_S):
        pass
    return future


class Runner:
    """Run every stage immediately in the calling thread. Subclasses define other ways."""

    def call(self, stage: Callable[..., Any], *args: Any) -> Any:
        """Run one stage."""
        return stage(*map(wait_for_all, args))

    def submit(self, stage: Callable[..., Any], *args: Any) -> Coming:
        """Begin a stage; futures among `args` (in lists, too) are waited for first."""
        future: Future[Any] = Future()
        future.set_result(self.call(stage, *args))
        return future

    def of_iteration(self, number: int) -> Self:
        """Give a runner for stages of another iteration, run beside those of the own one."""
        return self

    def settle(self, futures: Sequence[Coming]) -> None:
        """Wait for stages that fail by now, since the work was ended."""

    @contextmanager
    def holding(self, stage: str, going_on: Callable[[], None]) -> Iterator[None]:
        """Hold a slot of whatever limits how many stages of this kind run at once; `going_on` ends the wait by
        raising."""
        yield

    def committed(self, stage: str) -> None:
        """Hear that a stage, of a shard where it has shards, is in the store."""

    @contextmanager
    def heeding_cancel(self, end: Callable[[str], None]) -> Iterator[None]:
        """While the block runs, call `end` with the reason once somebody wants the work cancelled."""
        yield

    def ending(self, error: BaseException) -> str:
        """Say in one line how the work was ended from outside; empty where `error` is something else."""
        if isinstance(error, KeyboardInterrupt):
            return f"interrupted (Ctrl-C); {STAYS}"
        return str(error) if isinstance(error, Interrupted) else ""


class Threads(Runner):
    """Run stages side by side, each in a thread of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="r3l-stage")

    def submit(self, stage: Callable[..., Any], *args: Any) -> Coming:
        return self._pool.submit(self.call, stage, *args)

    def settle(self, futures: Sequence[Coming]) -> None:
        for future in futures:
            waited_for(future)


def wait_for_all(value: Any) -> Any:
    """Wait for the results of futures, also in lists; other values stay as they are."""
    if isinstance(value, Future):
        return value.result()
    return [wait_for_all(one) for one in value] if isinstance(value, list) else value
