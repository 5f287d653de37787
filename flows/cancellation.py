"""How work ends after a cancel, Ctrl-C or SIGTERM: soon, with nothing incomplete in the store, and with one line of
explanation."""

import logging
from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import ParamSpec, TypeVar

from prefect import Flow
from prefect.exceptions import CancelledRun, TerminationSignal
from prefect.states import Cancelled, Failed

from flows.orphaned_runs import sign_and_mend
from flows.server import why_withdrawn
from r3l.errors import Interrupted, ServerAway
from r3l.pipeline.runner import STAYS, Runner

P = ParamSpec("P")
R = TypeVar("R")
ENDED = (Interrupted, KeyboardInterrupt, TerminationSignal, CancelledRun)


def ending(error: BaseException) -> str:
    """Say in one line how Prefect ended the work; empty if it did not."""
    if isinstance(error, TerminationSignal):
        return f"ended by SIGTERM; {STAYS}"
    return str(error) if isinstance(error, CancelledRun) else Runner().ending(error)


def unless_ended(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `fn`; where its work was ended, give a state that ends the flow run or task run as Cancelled, with one line
    as its message, instead of as a crash; where a server is away, as Failed."""
    try:
        return fn(*args, **kwargs)
    except ENDED as ended:
        logging.getLogger("prefect.task_runs").addFilter(_QUIET)
        return Cancelled(message=ending(ended))  # type: ignore[return-value]
    except ServerAway as away:  # one line of each shard, where Prefect would print the trace of each
        return Failed(message=str(away), data=away)  # type: ignore[return-value]


def run_attended(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do as `unless_ended` does, in a flow run that says which process it is, and end those whose process is gone. A
    run that a schedule started and nobody wants any more is cancelled."""
    sign_and_mend()
    if reason := why_withdrawn():
        return Cancelled(message=reason)  # type: ignore[return-value]
    return unless_ended(fn, *args, **kwargs)


def cancellable(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function with `unless_ended` around every call."""

    @wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return unless_ended(fn, *args, **kwargs)

    return run


def watched_flow(flow: Flow[..., R], fn: Callable[..., R]) -> Flow[..., R]:
    """Copy a flow with another function, for whoever calls it from the process that draws its progress."""
    flow_copy = copy(flow)
    flow_copy.fn = wraps(flow.fn)(fn)
    return flow_copy


class _Quiet(logging.Filter):
    """Leaves out that each of many task runs ended because the flow run did: the flow run says so once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(("Finished in state Cancelled(", "Finished in state NotReady("))


_QUIET = _Quiet()
