"""A thin Prefect task for each stage, and the runner that runs stages as such tasks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, Self

from prefect import State, task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.futures import wait
from prefect.task_runners import ThreadPoolTaskRunner

from flows import server
from flows.cancellation import cancellable, ending
from r3l.errors import Interrupted, R3LError
from r3l.pipeline import evaluation
from r3l.pipeline.runner import MAX_THREADS, Coming, Runner
from r3l.pipeline.stages import calls

RUNNER: Any = ThreadPoolTaskRunner(max_workers=MAX_THREADS)
SETTLE_S = 4.0
TASKS: dict[Callable[..., Any], Any] = {}  # call of the pipeline -> the Prefect task that it is in a flow run
TELLING = {"shard": "shard", "round_": "round", "iteration": "iteration"}  # arguments that tell a task's runs apart


def is_task(call: Callable[..., Any], name: str, run_name: str = "") -> None:
    """Make a call of the pipeline a Prefect task. Its runs are named `run_name`, which may hold the call's arguments in
    braces; by default after the task and what tells its runs apart."""
    arguments = [argument for argument in TELLING if argument in signature(call).parameters]
    run_name = run_name or " ".join([name, *(f"{TELLING[argument]}={{{argument}}}" for argument in arguments)])
    TASKS[call] = task(name=name, task_run_name=run_name, cache_policy=NO_CACHE)(cancellable(call))


for stage, call in (calls.CALLS | {"evaluations": evaluation.play}).items():
    is_task(call, stage)


class PrefectRunner(Runner):
    """Every stage is a task run of the flow run that calls it; limits and cancels are the server's. `suffix` tells task
    runs of another iteration from those of the flow run's own."""

    def __init__(self, suffix: str = "") -> None:
        self.suffix = suffix

    def of_iteration(self, number: int) -> Self:
        return type(self)(f" of iteration {number}")

    def _task(self, stage: Callable[..., Any]) -> Any:
        task = TASKS[stage]
        return task.with_options(task_run_name=f"{task.task_run_name}{self.suffix}") if self.suffix else task

    def call(self, stage: Callable[..., Any], *args: Any) -> Any:
        return result_of(self._task(stage)(*args))

    def submit(self, stage: Callable[..., Any], *args: Any) -> Coming:
        future: Coming = self._task(stage).submit(*args)
        return future

    def settle(self, futures: Sequence[Coming]) -> None:
        """Let each task run end itself before its flow run does: Prefect would crash it."""
        if futures:
            wait(list(futures), timeout=SETTLE_S)  # type: ignore[arg-type]

    @contextmanager
    def holding(self, stage: str, going_on: Callable[[], None]) -> Iterator[None]:
        with server.holding(stage, going_on):
            yield

    def committed(self, stage: str) -> None:
        server.tell_progress(stage)

    @contextmanager
    def heeding_cancel(self, end: Callable[[str], None]) -> Iterator[None]:
        with server.heeding_cancel(end):
            yield

    def ending(self, error: BaseException) -> str:
        return ending(error)


def runner() -> Runner:
    """Choose the runner for a flow's function: tasks in a flow run, plain calls where the function is called without
    one."""
    return PrefectRunner() if FlowRunContext.get() else Runner()


def result_of(returned: Any) -> Any:
    """Unwrap what a task returned. Raise the project's own error, or `Interrupted`, where the task ended itself by a
    state."""
    if isinstance(returned, State):
        raise returned.data if isinstance(returned.data, R3LError) else Interrupted(str(returned.message))
    return returned
