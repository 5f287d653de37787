"""A stage as a Prefect task inside a flow run, and as a plain call outside one: then no server is asked and nothing is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from prefect import task
from prefect.context import FlowRunContext

P = ParamSpec("P")
R = TypeVar("R")


class Done(Generic[R]):
    """The future of a call that has already returned."""

    def __init__(self, value: R) -> None:
        self.value = value

    def result(self) -> R:
        return self.value

    def wait(self) -> None:
        """There is nothing to wait for."""


class StageTask(Generic[P, R]):
    """`fn`, and the Prefect task that it is where a flow run looks on."""

    def __init__(self, fn: Callable[P, R], **options: Any) -> None:
        self.fn = fn
        self.watched: Any = task(**options)(fn)
        self.__doc__ = fn.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        call = self.watched if FlowRunContext.get() else self.fn
        result: R = call(*args, **kwargs)
        return result

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """A future of the result; outside a flow run it is there at once."""
        return self.watched.submit(*args, **kwargs) if FlowRunContext.get() else Done(plain(self.fn, *args, **kwargs))


def plain(fn: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """`fn` with the futures among its arguments replaced by their results, as Prefect does."""
    return fn(*map(settled, args), **{name: settled(value) for name, value in kwargs.items()})


def settled(value: Any) -> Any:
    if isinstance(value, Done):
        return value.result()
    return [settled(one) for one in value] if isinstance(value, list) else value


def stage_task(**options: Any) -> Callable[[Callable[P, R]], StageTask[P, R]]:
    """Decorator: the options are those of Prefect's `task`."""
    return lambda fn: StageTask(fn, **options)
