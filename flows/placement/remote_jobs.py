"""Work on another work pool: a flow run of a deployment. The caller waits for it, cancels it when it is cancelled
itself, and starts it again if its host is lost. Only its results in the store count, not the state of the run."""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelling, Crashed

from flows.placement.heartbeat import Counts, Listener
from flows.server import lasting
from r3l.config.sections import PlacementSettings
from r3l.errors import ConfigError, Interrupted, R3LError
from r3l.pipeline.logs import log
from r3l.store.files.local import Files

POLL_S = 1.0
PATIENCE_S, PAUSE_S = 300.0, 5.0
Result = TypeVar("Result")


class RemoteJobError(R3LError):
    """A job on another work pool that failed, was cancelled, or lost its host too often."""


@dataclass(frozen=True)
class Errand:
    """One piece of work. The same `key` is the same work: a run that is under way for it is joined, not doubled."""

    deployment: str
    key: str
    parameters: dict[str, Any]  # small: what is large is in the store; `attempt` is added
    heartbeat: str  # path in the store


def run_remote(
    errand: Errand,
    files: Files,
    settings: PlacementSettings,
    finished: Callable[[], Result | None],
    stopped: threading.Event,
    on_counts: Callable[[Counts], None],
) -> Result:
    """Have a piece of work done elsewhere, and give back what `finished` finds in the store.

    Args:
        finished: the work's result, None as long as it is not whole.
        stopped: set where the caller ends: the run elsewhere is cancelled.
        on_counts: called with what the remote job counted since the last time.

    Raises:
        Interrupted: the caller has ended.
        RemoteJobError: it failed or was cancelled there, or its host was lost `settings.attempts` times.
    """
    lost_hosts = 0
    for attempt in itertools.count():
        if (result := finished()) is not None:
            return result
        run = submit(errand, attempt)
        if run.state is not None and run.state.is_final():
            continue  # of an earlier try, which left nothing whole
        state = wait(run, Listener(files, errand.heartbeat, attempt), settings.silent_s, stopped, on_counts)
        if (result := finished()) is not None:
            return result
        if not state.is_crashed():
            raise RemoteJobError(
                f"{errand.deployment}, flow run {run.name}: "
                f"{state.name}{f' ({state.message})' if state.message else ''}"
                f"{'; it left no result in the store' if state.is_completed() else ''}"
            )
        lost_hosts += 1
        if lost_hosts >= settings.attempts:
            raise RemoteJobError(
                f"{errand.deployment}: its host was lost {lost_hosts} times, last in flow run {run.name} "
                f"({state.message}); run the iteration again, which continues from what is stored"
            )
        log().warning("%s: flow run %s was lost (%s); sent again", errand.deployment, run.name, state.message)
    raise AssertionError("unreachable")


def submit(errand: Errand, attempt: int) -> FlowRun:
    """Start the flow run of this try, or find the one that is there already."""
    run: Any = patiently(
        lambda: run_deployment(
            errand.deployment,
            parameters=errand.parameters | {"attempt": attempt},
            timeout=0,
            idempotency_key=f"{errand.key}-{attempt}",
        )
    )
    log().info("%s: flow run %s", errand.deployment, run.name)
    return cast(FlowRun, run)


def wait(
    run: FlowRun, listener: Listener, silent_s: float, stopped: threading.Event, on_counts: Callable[[Counts], None]
) -> State[Any]:
    """Wait for the run's final state. A run whose host is silent for too long is taken to have crashed."""
    try:
        while not stopped.wait(POLL_S):
            state = state_of(run)
            on_counts(listener.listen())
            if state is not None and state.is_final():
                return state
            # Silence counts from the first beat on: a run that waits for a worker has no host that could be lost.
            if state is not None and not (state.is_running() or state.is_cancelling()):
                listener.begin()  # it waits for a worker
            elif listener.silent() > silent_s:
                return give_up(run, f"no heartbeat for {silent_s:g} s")
    except BaseException:
        cancel(run)
        raise
    cancel(run)
    raise Interrupted(f"flow run {run.name} was cancelled, since the run that asked for it has ended")


def state_of(run: FlowRun) -> State[Any] | None:
    """Ask for the run's state; None while the server can't be reached: the run goes on without it."""
    try:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(run.id).state
    except (httpx.TransportError, PrefectHTTPStatusError) as error:
        log().warning(
            "Prefect's server does not answer (%s); flow run %s is still waited for", type(error).__name__, run.name
        )
        return None


def give_up(run: FlowRun, reason: str) -> State[Any]:
    state: State[Any] = Crashed(message=reason)

    def say() -> None:
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(run.id, state, force=True)

    patiently(say)
    return state


def patiently(ask: Callable[[], Result]) -> Result:
    """Ask Prefect's server, which may be away for some minutes. What it refuses is raised at once."""
    for _ in range(int(PATIENCE_S / PAUSE_S)):
        try:
            return ask()
        except (httpx.TransportError, PrefectHTTPStatusError) as error:
            if isinstance(error, PrefectHTTPStatusError) and error.response.status_code < 500:
                raise
            log().warning("Prefect's server does not answer (%s); asked again in %g s", type(error).__name__, PAUSE_S)
            time.sleep(PAUSE_S)
    return ask()


def cancel(run: FlowRun) -> None:
    """Ask for it; the worker of the other pool ends the process, and the process ends its own."""
    try:
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(run.id, Cancelling())
    except (httpx.TransportError, PrefectHTTPStatusError) as error:
        log().warning("flow run %s could not be cancelled (%s): cancel it in Prefect's UI", run.name, error)


def check_placement(settings: PlacementSettings) -> None:
    """Raise `ConfigError` if work is to go to a deployment that isn't there: known before anything is sampled."""
    names = [settings.update_deployment] if settings.update_deployment else []
    names += [settings.shard_deployment] if settings.shards == "workers" else []
    if names and not lasting():
        raise ConfigError(
            f"placement names {', '.join(names)}, but no Prefect server is set: start one (`r3l up`), "
            "set PREFECT_API_URL, and run `prefect --no-prompt deploy --all`"
        )
    for name in names:
        try:
            with get_client(sync_client=True) as client:
                client.read_deployment_by_name(name)
        except httpx.HTTPError as error:
            raise ConfigError(
                f"placement: the Prefect server {PREFECT_API_URL.value()} can't be asked for {name!r} "
                f"({type(error).__name__}: {error}); start it, or set PREFECT_API_URL"
            ) from error
        except (ObjectNotFound, ValueError) as error:
            raise ConfigError(
                f"placement: no deployment {name!r} on {PREFECT_API_URL.value()}; run "
                "`prefect --no-prompt deploy --all`, or name one of `prefect deployment ls`"
            ) from error
