"""How stages are run: as plain calls one after another, on threads side by side, or (flows/tasks.py) as Prefect
tasks."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Generic, Protocol, Self, TypeVar

from r3l.errors import Interrupted

R = TypeVar("R")
STAYS = "what is committed stays, and the next start goes on from there"
MAX_THREADS = 256  # most of them wait for an engine or a world


class Coming(Protocol):
    """What `Runner.submit` gives: the future of a stage. Futures may be arguments of later stages."""

    def result(self) -> Any: ...

    def wait(self) -> Any: ...


class Done(Generic[R]):
    """The future of a call that has already returned."""

    def __init__(self, value: R) -> None:
        self.value = value

    def result(self) -> R:
        return self.value

    def wait(self) -> None:
        """Wait for nothing: the result is there."""


class Runner:
    """Run every stage immediately in the calling thread. Subclasses define other ways."""

    def call(self, stage: Callable[..., Any], *args: Any) -> Any:
        """Run one stage."""
        return stage(*map(wait_for_all, args))

    def submit(self, stage: Callable[..., Any], *args: Any) -> Coming:
        """Begin a stage; futures among `args` (in lists, too) are waited for first."""
        return Done(self.call(stage, *args))

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
        return _Thread(self._pool.submit(self.call, stage, *args))

    def settle(self, futures: Sequence[Coming]) -> None:
        wait([one.future for one in futures if isinstance(one, _Thread)])


class _Thread:
    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def result(self) -> Any:
        return self.future.result()

    def wait(self) -> None:
        wait([self.future])


def wait_for_all(value: Any) -> Any:
    """Wait for the results of futures, also in lists; other values stay as they are."""
    if isinstance(value, Done | _Thread):
        return value.result()
    return [wait_for_all(one) for one in value] if isinstance(value, list) else value
