"""The flow's stages as plain calls over the corridor: a scripted walker for a policy, and the real update in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flows import iterate, policies, tasks
from flows.policies import Policies
from flows.recorded import save_config
from flows.workbench import Workbench
from r3l.config import Config
from r3l.exploration.tally import Tally
from r3l.records import Task
from r3l.store.catalog import connect
from r3l.store.query import query
from r3l.store.stage import Store
from r3l.training.job import Job
from r3l.training.parallel import Ranks
from r3l.training.update import run_update
from tests.fakes import explorer
from tests.rehearsal import walker


@pytest.fixture
def corridor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of the corridor an iteration."""
    monkeypatch.setattr(tasks, "draw", lambda config, iteration: [
        Task(iteration, slot, f"corridor/{slot}", "corridor", "train", "walk", "{}", 7 + slot) for slot in range(2)])
    monkeypatch.setattr("flows.step.launch", lambda job, folder, *_: run_update(Job(**job), Ranks(), lambda event, **fields: None))
    monkeypatch.setattr(Workbench, "_start", lambda bench: replace(explorer(walker), policy=bench.policies.behaviour.digest))


def iteration(config: Config, store: Store, number: int) -> Policies:
    """Run one; returns the policies that it began with."""
    with store.writer_lock(config.run, config.branch, number):
        store.sweep(config.run)
        save_config(store, config, number)
        found = policies.find(config, store, number)
        iterate.stages(Workbench(config, store, number, found, Tally()))
    return found


def ask(store: Store, sql: str) -> list[dict[str, Any]]:
    with connect(store) as connection:
        return query(connection, sql).to_pylist()
