"""Calls to a local Prefect server: slots of the global concurrency limits, signs of progress, and whether a run is
still wanted.

An ephemeral server is left alone, and so is a server without these limits: nothing is waited for
there. `infra/prefect.sh` makes the limits and the automation that listens for progress.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.concurrency.sync import concurrency
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL

from flows.serving.tied import is_tied
from r3l.pipeline.logs import log
from r3l.stages import stages_that

ENGINE, GPU = "r3l-engine", "r3l-gpu"
HELD_BY = dict.fromkeys(stages_that(lambda stage: stage.samples), ENGINE) | dict.fromkeys(
    stages_that(lambda stage: stage.trains), GPU
)
LEASE_S = 60.0  # a killed run gives its slots back after this long
ASK_S = 3.0
LISTEN_S = 1.0  # an ended run ends within 10 s, on a busy machine too
PROGRESS = "r3l.stage.committed"


def lasting() -> str:
    """Find the address of the server that outlives this process; empty: there is none."""
    api = PREFECT_API_URL.value() or ""
    return "" if is_tied(api) else api


def is_watched() -> bool:
    """Tell whether this is a flow run on a server that outlives it."""
    return bool(lasting() and flow_run.id)


@lru_cache(maxsize=64)
def limits(flow_run_id: str) -> frozenset[str]:
    """Ask which of the two limits the server has: once in a flow run."""
    with get_client(sync_client=True) as client:
        return frozenset({ENGINE, GPU} & {limit.name for limit in client.read_global_concurrency_limits(limit=200)})


@lru_cache(maxsize=64)
def root(flow_run_id: str) -> str:
    """Find the flow run that the server started: the one that can be cancelled from there."""
    return str(flow_run.root_flow_run_id)


@contextmanager
def holding(stage: str, going_on: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a slot of the limit that the stage counts against, if the server has such a limit; wait for as long as it is
    taken.

    Args:
        going_on: asked every few seconds of waiting; what it raises ends the wait.
    """
    name = HELD_BY.get(stage)
    if name is None or not is_watched() or name not in limits(str(flow_run.id)):
        yield
        return
    log().info("%s: asks for a slot of %s", stage, name)
    with ExitStack() as slots:
        while True:
            going_on()
            # Short tries instead of one long wait: a cancel is heard between two of them.
            with suppress(TimeoutError):
                slots.enter_context(concurrency(name, lease_duration=LEASE_S, timeout_seconds=ASK_S))
                break
        yield


def tell_progress(stage: str) -> None:
    """Tell the server that the run is alive: it got a stage done. A run that stops saying so is cancelled by the
    automation."""
    if is_watched():
        emit_event(
            PROGRESS, resource={"prefect.resource.id": f"prefect.flow-run.{root(str(flow_run.id))}", "r3l.stage": stage}
        )


@contextmanager
def heeding_cancel(end: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, call `end` once the server has the flow run in Cancelling. A run that a worker started is
    ended by its worker; one that was started from a terminal has nobody else to hear of it."""
    if not is_watched() or "PREFECT__FLOW_RUN_ID" in os.environ:
        yield
        return
    ids, over = {str(flow_run.id), str(flow_run.root_flow_run_id)}, threading.Event()

    def listen() -> None:
        with get_client(sync_client=True) as client:
            while not over.wait(LISTEN_S):
                if any(cancelling(client, id_) for id_ in ids):
                    end("the flow run was cancelled; what is committed stays, and the next start goes on from there")
                    return

    listener = threading.Thread(target=listen, name="r3l-cancel", daemon=True)
    listener.start()
    try:
        yield
    finally:
        over.set()


def cancelling(client: SyncPrefectClient, flow_run_id: str) -> bool:
    """Tell whether somebody asked for the end of a flow run. A server that does not answer asks for nothing."""
    try:
        state = client.read_flow_run(UUID(flow_run_id)).state
    except (httpx.HTTPError, PrefectHTTPStatusError, ObjectNotFound):
        return False
    return state is not None and (state.is_cancelling() or state.is_cancelled())


def why_withdrawn() -> str:
    """Say why a schedule's run is not wanted any more; empty if it is, or if no schedule started it.

    Prefect withdraws the future runs of a schedule that is paused, but keeps the late ones: those that waited for the
    iteration before them would train although nobody wants them to.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or not run.auto_scheduled or run.deployment_id is None:
        return ""
    try:
        with get_client(sync_client=True) as client:
            deployment = client.read_deployment(run.deployment_id)
    except (httpx.HTTPError, PrefectHTTPStatusError):
        return ""  # a server that does not answer withdraws nothing
    except ObjectNotFound:
        return "its deployment was deleted after this run was scheduled"
    if deployment.paused:
        return "its deployment was paused after this run was scheduled"
    active = {str(schedule.id) for schedule in deployment.schedules if schedule.active}
    if run.created_by and str(run.created_by.id) not in active:
        return "its schedule was paused or deleted after this run was scheduled"
    return ""
