"""The flow's stages as plain calls over the corridor: a scripted walker for a policy, and the real update in this
process."""

from dataclasses import replace
from pathlib import Path

import pytest

from r3l.config import Config, compose
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.pipeline.policies import Policies
from r3l.pipeline.workbench import Workbench
from r3l.store.stage import Store
from r3l.training.job import Job
from r3l.training.parallel.ranks import Ranks
from r3l.training.update import run_update
from tests.support import records
from tests.support.fakes import explorer
from tests.support.rehearsal import tiny_policy, walker


@pytest.fixture
def corridor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of the corridor an iteration."""
    monkeypatch.setattr(
        "r3l.pipeline.stages.calls.draw", lambda config, iteration: records.corridor_tasks(iteration, 2)
    )
    monkeypatch.setattr(
        "r3l.pipeline.update.local.launch",
        lambda job, folder, *_: run_update(Job(**job), Ranks(), lambda event, **fields: None),
    )
    monkeypatch.setattr(
        Workbench, "_start", lambda bench: replace(explorer(walker), policy=bench.policies.behaviour.digest)
    )


def two_tasks(store: Store | str, folder: Path, *assignments: str, **presets: str) -> Config:
    """The settings of a run of two tasks, N = 4, from a policy made at random."""
    root = store if isinstance(store, str) else store.root
    start = tiny_policy(folder / "start", 0)
    given = ["rollout.tasks=2", "rollout.group_size=4", f"store.root={root}", f"policy.path={start}"]
    return compose(run="demo", assignments=[*given, *assignments], **presets)


def iteration(config: Config, store: Store, number: int) -> Policies:
    """Run one; returns the policies that it began with."""
    with open_iteration(config, store, number) as bench:
        run_stages(bench)
        return bench.policies
