"""Shards that other hosts play: the same rows as here, taken from the store, and played again where they are not whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.states import Completed, Running

from flows import elsewhere, iterate, policies, remote_shard, tasks
from flows.placed_shards import placed
from flows.workbench import Workbench
from r3l.config import Config
from r3l.exploration.tally import Tally
from r3l.store.layout import StageRef
from r3l.store.stage import Store
from tests.flows.scripted import deterministic
from tests.flows.small import small_config
from tests.scripted_player import ScriptedPlayer

PLAYED = ["engine.kind=vllm_server", "environment.kind=household", "environment.level=easy", "environment.max_turns=8",
          "environment.reply_tokens=80", "environment.workers=1", "rollout.tasks=2"]


@pytest.fixture(scope="module")
def server():
    made = ScriptedPlayer()
    yield made
    made.stop()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked of the pool; it is done at once, in this process."""
    found: list[dict[str, Any]] = []

    def submit(errand: elsewhere.Errand, attempt: int) -> Any:
        found.append(errand.parameters | {"attempt": attempt})
        state = Completed()
        if all(earlier != found[-1] for earlier in found[:-1]):  # the same work again: the run that there was
            told = found[-1] | {"config": Config.model_validate(errand.parameters["config"])}
            remote_shard.shard.fn(**told)
            state = Running()
        return type("Run", (), {"id": 0, "name": "run", "state": state})

    monkeypatch.setattr(elsewhere, "POLL_S", 0.01)
    monkeypatch.setattr(elsewhere, "submit", submit)
    monkeypatch.setattr(elsewhere, "state_of", lambda run: Completed())
    return found


def bench_of(root: Path, server: ScriptedPlayer, *assignments: str) -> tuple[Workbench, StageRef]:
    config = small_config(root, *PLAYED, f'engine.urls="{server.url}"', *assignments)
    store = Store.open(str(root))
    bench = Workbench(config, store, 0, policies.find(config, store, 0), Tally())
    return bench, tasks.tasks_task(bench)


def digests(refs: list[StageRef]) -> dict[str, str]:
    return {f"{ref.stage}/{ref.shard}": ref.digest for ref in refs if deterministic(ref.stage)}


def test_the_same_rows_from_elsewhere_once_and_again_where_they_were_lost(server, asked, tmp_path: Path) -> None:
    bench, batch = bench_of(tmp_path / "here", server)
    here = digests(iterate.here(bench, batch, range(2)))
    bench.close()
    assert len(here) == 2 * 3

    bench, batch = bench_of(tmp_path / "there", server, "placement.shards=workers", "placement.heartbeat_s=0.1")
    there = placed(bench, batch, range(2))
    assert digests(there) == here
    assert [(one["shard"], one["attempt"]) for one in asked] == [(0, 0), (1, 0)]
    counts = bench.tally.snapshot()
    assert counts["base"]["done"] == 4  # heard by heartbeats
    assert placed(bench, batch, range(2)) == there
    assert len(asked) == 2  # nothing is asked for twice

    lost = next(ref for ref in there if ref.stage == "distilled" and ref.shard == 1)
    next((tmp_path / "there" / lost.key.folder).glob("part-*.parquet")).unlink()
    assert digests(placed(bench, batch, range(2))) == here
    assert [(one["shard"], one["attempt"]) for one in asked[2:]] == [(1, 0), (1, 1)]  # the first is over, and left it torn
    bench.close()
