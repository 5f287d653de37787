"""How work ends after a cancel, Ctrl-C or SIGTERM: soon, with nothing incomplete in the store, and with one line of
explanation."""

import logging
from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import ParamSpec, TypeVar
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import CancelledRun, PrefectHTTPStatusError, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Crashed, Failed

from flows.server import why_withdrawn
from r3l.errors import Interrupted, ServerAway
from r3l.pipeline.logs import log
from r3l.pipeline.runner import STAYS, Runner
from r3l.store.files.process import lives, mark

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


LABEL = "r3l.process"
OPEN = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
GONE = "its process ended without a word: it was killed, or the machine went down"


def sign_and_mend() -> None:
    """Note on this flow run which process runs it, and end those whose process is gone. A server that does not answer
    has neither."""
    if not flow_run.id:
        return
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(UUID(str(flow_run.id)), {LABEL: mark()})
            for orphan in orphans(client):
                crash(client, orphan)
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        log().info("Prefect's server took no mark of this run (%s)", error)


def orphans(client: SyncPrefectClient) -> list[UUID]:
    """Find the unfinished flow runs whose process is known, ran on this host and has ended."""
    open_runs = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=OPEN)))
    marks = {run.id: run.labels.get(LABEL) for run in client.read_flow_runs(flow_run_filter=open_runs, limit=200)}
    return [id_ for id_, owner in marks.items() if isinstance(owner, str) and lives(owner) is False]


def crash(client: SyncPrefectClient, flow_run_id: UUID) -> None:
    """End a flow run and its task runs."""
    of_it = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    open_tasks = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=OPEN)))
    for task_run in client.read_task_runs(flow_run_filter=of_it, task_run_filter=open_tasks, limit=200):
        client.set_task_run_state(task_run.id, Crashed(message=GONE), force=True)
    client.set_flow_run_state(flow_run_id, Crashed(message=GONE), force=True)
    log().info("flow run %s: %s", flow_run_id, GONE)
