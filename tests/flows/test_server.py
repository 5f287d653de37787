"""Global concurrency limits hold where they were made, and nothing is asked or waited for elsewhere."""

import threading
import time
from contextlib import AbstractContextManager
from types import SimpleNamespace
from uuid import uuid4

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import CreatedBy, FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.task_runners import ThreadPoolTaskRunner

from flows import cancellation, server
from flows.evaluate import EvaluationForm, evaluate
from flows.iterate import iterate
from flows.lab.compare import compare
from flows.replay import replay
from flows.train import train
from r3l.config.form import Form


class Most:
    """How many were inside at once, at most."""

    def __init__(self, together: threading.Barrier | None) -> None:
        self.now, self.most, self.lock, self.together = 0, 0, threading.Lock(), together

    def visit(self, stage: str) -> None:
        with server.holding(stage):
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            if self.together:  # all who may be inside meet there
                self.together.wait(120)
            else:
                time.sleep(0.3)
            with self.lock:
                self.now -= 1


def side_by_side(stage: str, count: int, limited: bool) -> int:
    seen = Most(None if limited else threading.Barrier(count))

    @task(cache_policy=NO_CACHE)
    def one(seen: Most) -> None:
        seen.visit(stage)

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=8))
    def several() -> None:
        for future in [one.submit(seen) for _ in range(count)]:
            future.result()

    several()
    return seen.most


@pytest.fixture
def one_slot(prefect_server):
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(server.GPU, 1)
        yield
        client.delete_global_concurrency_limit_by_name(server.GPU)


def test_stages_take_turns_at_the_slot_that_they_count_against(one_slot):
    assert side_by_side("updates", 2, limited=True) == 1
    assert side_by_side("base", 3, limited=False) == 3  # there is no limit r3l-engine
    assert side_by_side("credit", 3, limited=False) == 3  # counts against none


def test_without_a_server_of_its_own_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(server, "get_client", lambda **_: pytest.fail("the server was asked"))
    monkeypatch.setattr(server, "emit_event", lambda *_, **__: pytest.fail("the server was told"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        with server.holding("updates"):
            server.tell_progress("updates")


SCHEDULE, OTHER = uuid4(), uuid4()


@pytest.mark.parametrize(("run", "paused", "active", "reason"), [
    ({}, False, [SCHEDULE, OTHER], ""),
    ({}, True, [SCHEDULE], "its deployment was paused after this run was scheduled"),
    ({}, False, [OTHER], "its schedule was paused or deleted after this run was scheduled"),
    ({"auto_scheduled": False}, True, [], ""),  # a person asked for it
    ({"deployment_id": None}, True, [], ""),
])  # fmt: skip
def test_a_run_is_withdrawn_with_the_schedule_that_planned_it(monkeypatch, run, paused, active, reason):
    values = {"flow_id": uuid4(), "auto_scheduled": True, "deployment_id": uuid4()}
    planned = FlowRun(**values | run, created_by=CreatedBy(id=SCHEDULE, type="SCHEDULE"))
    schedules = [SimpleNamespace(id=id_, active=id_ in active) for id_ in (SCHEDULE, OTHER)]

    class Client(AbstractContextManager):
        def read_deployment(self, deployment_id):
            assert deployment_id == planned.deployment_id
            return SimpleNamespace(paused=paused, schedules=schedules)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(server.FlowRunContext, "get", lambda: SimpleNamespace(flow_run=planned))
    monkeypatch.setattr(server, "get_client", lambda **_: Client())
    assert server.why_withdrawn() == reason


@pytest.mark.parametrize("run", [
    lambda: iterate.fn(Form()),
    lambda: train.fn(Form(), 2),
    lambda: evaluate.fn(EvaluationForm()),
    lambda: replay.fn("demo", 0),
    lambda: compare.fn("data/experiments/latent.toml"),
], ids=["iterate", "train", "evaluate", "replay", "compare"])  # fmt: skip
def test_no_flow_plays_or_trains_for_a_schedule_that_is_paused(run, monkeypatch, tmp_path):
    monkeypatch.setenv("R3L_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(cancellation, "sign_and_mend", lambda: None)
    monkeypatch.setattr(cancellation, "why_withdrawn", lambda: "its deployment was paused")
    state = run()
    assert (state.name, state.message) == ("Cancelled", "its deployment was paused")
    assert not list((tmp_path / "store").glob("[!.]*"))
