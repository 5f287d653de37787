"""Calls that outlive a worker which another session's call took down."""

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar

from r3l.errors import SessionLost

S = TypeVar("S")
T = TypeVar("T")
SURVIVED = 2  # workers that a call may lose by the fault of other sessions


def surviving(ask: Callable[[], Future[T]]) -> Future[T]:
    """Ask, and ask again where the worker was lost by the fault of another session."""
    whole, losses = uncancellable(), count(1)

    def settle(answered: Future[T]) -> None:
        if isinstance(answered.exception(), SessionLost) and next(losses) <= SURVIVED:
            follow(ask, settle, whole)
        else:
            pass_on(answered, whole)

    ask().add_done_callback(settle)
    return whole


def chain(first: Future[S], then: Callable[[S], Future[T]]) -> Future[T]:
    """Ask `then` once the first call has its result."""
    whole = uncancellable()

    def settle(answered: Future[S]) -> None:
        if answered.exception():
            pass_on(answered, whole)
        else:
            follow(lambda: then(answered.result()), lambda last: pass_on(last, whole), whole)

    first.add_done_callback(settle)
    return whole


def uncancellable() -> Future[Any]:
    """Make a future that nobody can cancel: a reader of answers sets its result."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def follow(ask: Callable[[], Future[T]], settle: Callable[[Future[T]], None], whole: Future[Any]) -> None:
    """Ask, in a thread that reads answers: what goes wrong there is for the caller who waits for `whole`."""
    try:
        asked = ask()
    except Exception as error:  # noqa: BLE001 - a worker that can't be started, for example
        whole.set_exception(error)
    else:
        asked.add_done_callback(settle)


def pass_on(answered: Future[Any], whole: Future[Any]) -> None:
    if error := answered.exception():
        whole.set_exception(error)
    else:
        whole.set_result(answered.result())
