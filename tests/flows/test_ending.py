"""Work that is ended from outside is never a row: nothing of a stage that was under way is committed, and the next
start plays it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from prefect import State
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Cancelling

from flows import server
from flows.iterate import iterate, iteration_of
from r3l.config import Config
from r3l.engines.base import Completion, Sampling
from r3l.errors import FailedAttempts, Interrupted, ServerAway, WorldError
from r3l.pipeline import preflight
from r3l.pipeline.update import process
from r3l.pipeline.workbench import Workbench
from r3l.records import Task
from r3l.stages import STAGES
from r3l.store.stage import Store
from tests.flows.small import small_config
from tests.support import records
from tests.support.answers import ask
from tests.support.fakes import CorridorPool, ScriptedEngine, explorer, failed
from tests.support.rehearsal import walker

pytestmark = pytest.mark.usefixtures("prefect_server")
ASKED = {
    "base": "/base=",
    "reflections": "/reflection=",
    "retries": "/retry=",
}  # what the ids of a stage's requests have in them
SLEEPY_JOB = "import time; print('{}', flush=True); time.sleep(600)"


class Waiting(ScriptedEngine):
    """The walker as an engine; the calls of one stage are never answered until it is closed, as the real ones do it."""

    def __init__(self, stage: str, reached: Callable[[], None]) -> None:
        super().__init__(walker)
        self.mark, self.reached = ASKED.get(stage, ""), reached
        self.error: Exception | None = None  # of every call from now on
        self.open: list[Future[Completion]] = []

    def complete(self, request_id: str, prompt_ids: Any, sampling: Sampling) -> Future[Completion]:
        if self.error:
            return failed(self.error)
        if not self.mark or self.mark not in request_id:
            return super().complete(request_id, prompt_ids, sampling)
        self.open.append(Future())
        self.open[-1].set_running_or_notify_cancel()
        self.reached()
        return self.open[-1]

    def close(self) -> None:
        self.fail(Interrupted("the engine was closed before this request was answered"))

    def fail(self, error: Exception) -> None:
        self.error = self.error or error
        for future in self.open:
            if not future.done():
                future.set_exception(error)


class World:
    """An iteration in the corridor that comes to a halt in one stage; `end` is then called in a thread of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stage: str, end: Callable[[World], None]) -> None:
        self.end, self.once, self.flow_run_id = end, threading.Lock(), ""
        self.engine = Waiting(stage, self.reached)

        def start(bench: Workbench) -> Any:
            self.flow_run_id = str(flow_run.id)
            bench.tools._engine = self.engine  # type: ignore[assignment]
            return replace(explorer(walker), engine=self.engine, policy=bench.policies.behaviour.digest)

        monkeypatch.setattr(Workbench, "_start", start)
        if stage == "updates":
            monkeypatch.setattr(process, "_command", lambda spec, processes: [sys.executable, "-c", SLEEPY_JOB])
            monkeypatch.setattr(
                "r3l.pipeline.update.local.launch",
                lambda job, folder, processes, timeout_s, on_line, stopped, waiting: process.launch(
                    job, folder, processes, timeout_s, lambda line: self.reached(), stopped
                ),
            )

    def reached(self) -> None:
        if self.once.acquire(blocking=False):
            threading.Thread(target=self.end, args=[self], daemon=True).start()


def cancel(world: World) -> None:
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(world.flow_run_id, Cancelling())  # type: ignore[arg-type]


WAYS: dict[str, Callable[[World], None]] = {
    "cancel": cancel,
    "Ctrl-C": lambda world: os.kill(os.getpid(), signal.SIGINT),
    "SIGTERM": lambda world: os.kill(os.getpid(), signal.SIGTERM),
    "closed engine": lambda world: world.engine.close(),
    "server away": lambda world: world.engine.fail(ServerAway("no server runs the policy after 1 s")),
}


@pytest.fixture
def halting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Callable[[World], None]], World]]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
    monkeypatch.setattr(preflight, "check", lambda config, training=True: Store.open(config.store.root))
    monkeypatch.setattr(
        "r3l.pipeline.stages.calls.draw", lambda config, iteration: records.corridor_tasks(iteration, 2)
    )
    monkeypatch.setattr(server, "LISTEN_S", 0.1)
    yield lambda stage, end: World(monkeypatch, stage, end)
    signal.signal(signal.SIGINT, before)
    logging.getLogger("prefect.task_runs").filters.clear()


def ended(config: Config, caplog: pytest.LogCaptureFixture) -> State[Any]:
    """The state of an iteration, which has to end, though a stage of it never would, and quietly."""
    with caplog.at_level(logging.INFO):
        state: State[Any] = iterate(config, return_state=True)  # type: ignore[call-overload]
    assert not [record for record in caplog.records if "Crash detected" in record.getMessage()]
    return state


CANCELLED = "the flow run was cancelled; what is committed stays, and the next start goes on from there"
MATRIX = [
    pytest.param("base", way, marks=[] if way in ("SIGTERM", "server away") else pytest.mark.slow) for way in WAYS
] + [
    ("reflections", "cancel"),
    pytest.param("retries", "cancel", marks=pytest.mark.slow),
    pytest.param("retries", "Ctrl-C", marks=pytest.mark.slow),
    pytest.param("updates", "cancel", marks=pytest.mark.slow),
    ("updates", "SIGTERM"),
]


@pytest.mark.parametrize(("stage", "way"), MATRIX)
def test_what_was_under_way_is_no_row_and_the_next_start_plays_it(halting, tmp_path, caplog, stage, way):
    config = small_config(tmp_path, iteration=0)
    halting(stage, WAYS[way])
    state = ended(config, caplog)
    assert state.type.value == ("FAILED" if way == "server away" else "CANCELLED"), state
    if way == "cancel":
        assert state.message == CANCELLED
        errors = [one for one in caplog.records if one.name.startswith("prefect") and one.levelno >= logging.ERROR]
        assert len(errors) <= 1, errors
    store = Store.open(str(tmp_path))
    there = {ref.stage for ref in store.stages("small", "", 0)}
    assert not there & set([*STAGES][[*STAGES].index(stage) :])  # neither the stage nor what comes after it
    before = ask(store, "SELECT stage, shard, committed_at FROM stages ORDER BY ALL") if there else []

    halting("", lambda world: None)
    config = config.model_copy(update={"training": config.training.model_copy(update={"processes": 0})})
    iteration_of(config)  # outside a flow run: the same stages, sooner
    after = ask(store, "SELECT stage, shard, committed_at FROM stages ORDER BY ALL")
    assert all(row in after for row in before)  # what was committed is not played again
    assert ask(store, "SELECT count(*) FILTER (status LIKE '%_error') AS failed, count(*) AS n FROM base") == [
        {"failed": 0, "n": 4}
    ]


class Breaking(CorridorPool):
    """The world breaks when sessions of these tasks are started."""

    def __init__(self, *broken: str) -> None:
        super().__init__()
        self.broken = broken

    def start(self, session: str, task: Task) -> Any:
        return failed(WorldError("the world broke")) if session.endswith(self.broken) else super().start(session, task)


def failing(halting: Any, monkeypatch: pytest.MonkeyPatch, *broken: str) -> None:
    halting("", lambda world: None)
    monkeypatch.setattr(
        Workbench,
        "_start",
        lambda bench: replace(explorer(walker, Breaking(*broken)), policy=bench.policies.behaviour.digest),
    )


def test_too_many_failed_attempts_fail_the_stage_with_their_count_and_the_first_reason(halting, monkeypatch, tmp_path):
    """Two shards of two bases each. One attempt of four is 25 %."""
    failing(halting, monkeypatch, "task=1/base=1")
    config = small_config(tmp_path, "training.processes=0", iteration=0)
    with pytest.raises(
        FailedAttempts,
        match=r"base: 1 of 2 attempts ended by errors .*\(1 of about 4 in the whole stage\), more than "
        r"rollout.max_failed_share=0.1 allows; .* The first: environment_error: the world broke",
    ):
        iteration_of(config)
    assert [ref.shard for ref in Store.open(str(tmp_path)).stages("small", "", 0) if ref.stage == "base"] in ([0], [])


def test_a_share_that_is_allowed_is_stored_and_counted(halting, monkeypatch, tmp_path) -> None:
    failing(halting, monkeypatch, "task=1/base=1")
    config = small_config(tmp_path, "training.processes=0", "rollout.max_failed_share=0.25", iteration=0)
    assert iteration_of(config)["failed_attempts"] == 1
    store = Store.open(str(tmp_path))
    metrics = [store.manifest(ref)["metrics"] for ref in store.stages("small", "", 0) if ref.stage == "base"]
    assert [(one["attempts"], one["failed_attempts"]) for one in metrics] == [(2, 0), (2, 1)]


def test_the_share_is_that_of_all_shards_together(halting, monkeypatch, tmp_path) -> None:
    """One failed attempt in each of two shards: each alone would be 1 of about 4, together they are 2 of 4."""
    failing(halting, monkeypatch, "base=1")
    config = small_config(
        tmp_path, "training.processes=0", "rollout.max_failed_share=0.25", "rollout.shards_in_flight=1", iteration=0
    )
    with pytest.raises(FailedAttempts, match=r"\(2 of about 4 in the whole stage\)"):
        iteration_of(config)
    assert [ref.shard for ref in Store.open(str(tmp_path)).stages("small", "", 0) if ref.stage == "base"] == [0]
