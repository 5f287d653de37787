"""Runs in Prefect's database whose process is gone: SIGKILL leaves them RUNNING forever. The next start marks them as
crashed."""

from uuid import UUID

import httpx
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
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import flow_run
from prefect.states import Crashed

from r3l.pipeline.logs import log
from r3l.store.files.process import lives, mark

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
