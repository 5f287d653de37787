"""Shards that other hosts play: the same rows as here, taken from the store, and played again where they are not
whole."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from prefect.states import Completed, Running

from flows.placement import remote_jobs, remote_shard
from flows.placement.placed import play_elsewhere
from flows.placement.policies import fetch_policies, share_policies
from r3l.config import Config
from r3l.engines.base import PolicySnapshot
from r3l.engines.chat_format import ChatFormat
from r3l.errors import StoreError
from r3l.exploration.progress import Progress
from r3l.pipeline import policies
from r3l.pipeline.stages import calls
from r3l.pipeline.stages.shards import shard_stages
from r3l.pipeline.workbench import Workbench
from r3l.store.layout import StageRef
from r3l.store.policies.snapshots import snapshot_digest
from r3l.store.stage import Store
from tests.flows.scripted import deterministic
from tests.flows.small import served_config, small_config
from tests.support.object_server import endpoint, make_bucket
from tests.support.scripted_player import ScriptedPlayer

__all__ = ["endpoint"]
PLAYED = ["environment.max_turns=8", "environment.workers=1", "rollout.tasks=2"]


@pytest.fixture(scope="module")
def server():
    made = ScriptedPlayer()
    yield made
    made.stop()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked of the pool; it is done at once, in this process, as on a host that has no policy."""
    found: list[dict[str, Any]] = []

    def submit(errand: remote_jobs.Errand, attempt: int) -> Any:
        found.append(errand.parameters | {"attempt": attempt})
        state = Completed()
        if all(earlier != found[-1] for earlier in found[:-1]):  # the same work again: the run that there was
            visitor = errand.parameters["config"] | {
                "policy": errand.parameters["config"]["policy"] | {"path": "not/on/this/host"}
            }
            request = found[-1] | {"config": Config.model_validate(visitor)}
            remote_shard.shard.fn(**request)
            state = Running()
        return type("Run", (), {"id": 0, "name": "run", "state": state})

    monkeypatch.setattr(remote_jobs, "POLL_S", 0.01)
    monkeypatch.setattr(remote_jobs, "submit", submit)
    monkeypatch.setattr(remote_jobs, "state_of", lambda run: Completed())
    return found


def bench_of(root: Path, server: ScriptedPlayer, *assignments: str) -> tuple[Workbench, StageRef]:
    config = served_config(root, server.url, *PLAYED, *assignments)
    store = Store.open(str(root))
    bench = Workbench(config, store, 0, policies.find(config, store, 0), Progress())
    return bench, calls.draw_tasks(bench)


def digests(refs: list[StageRef]) -> dict[str, str]:
    return {f"{ref.stage}/{ref.shard}": ref.digest for ref in refs if deterministic(ref.stage)}


def test_the_same_rows_from_elsewhere_once_and_again_where_they_were_lost(server, asked, tmp_path: Path) -> None:
    bench, batch = bench_of(tmp_path / "here", server)
    here = digests(shard_stages(bench, batch, range(2)))
    bench.close()
    assert len(here) == 2 * 3

    bench, batch = bench_of(tmp_path / "there", server, "placement.shards=workers", "placement.heartbeat_s=0.1")
    there = play_elsewhere(bench, batch, range(2))
    assert digests(there) == here
    assert [(one["shard"], one["attempt"]) for one in asked] == [(0, 0), (1, 0)]
    counts = bench.progress.snapshot()
    assert counts["base"]["done"] == 4  # heard by heartbeats
    assert counts["base"]["done_tokens"] == counts["base"]["tokens"] > 0
    assert play_elsewhere(bench, batch, range(2)) == there
    assert len(asked) == 2  # nothing is asked for twice

    lost = next(ref for ref in there if ref.stage == "distilled" and ref.shard == 1)
    next((tmp_path / "there" / lost.key.folder).glob("part-*.parquet")).unlink()
    assert digests(play_elsewhere(bench, batch, range(2))) == here
    assert [(one["shard"], one["attempt"]) for one in asked[2:]] == [
        (1, 0),
        (1, 1),
    ]  # the first is over, and left it torn
    bench.close()


def learnt(store: Store, start: policies.Policies, folder: Path) -> policies.Policies:
    """As after an update: a policy in the store, with a canary and an optimiser's state beside it."""
    made = store.files.cache / "small/policies/iteration=00000"
    shutil.copytree(start.start.path, made / "policy")
    weights = made / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    (made / "canary.json").write_text("{}")
    (made / "optimizer").mkdir()
    (made / "optimizer" / "state.safetensors").write_bytes(b"large")
    store.publish("small/policies/iteration=00000")
    snapshot = PolicySnapshot(
        str(made / "policy"), snapshot_digest(made / "policy"), None, "small/policies/iteration=00000/policy"
    )
    return policies.Policies(start.start, snapshot, snapshot, made, made)


@pytest.mark.parametrize("kind", ["vllm_server", "transformers_local"])
def test_a_visiting_host_fetches_what_it_samples_with_and_no_more(endpoint, kind, tmp_path, monkeypatch):
    """From the store alone: tokenizer and template where servers sample, else the policies; never the optimiser's
    state."""
    config = small_config(
        make_bucket(endpoint, kind.replace("_", "-"), tmp_path / "flow", monkeypatch), f"engine.kind={kind}"
    )
    store = Store.open(config.store.root)
    known = learnt(store, policies.find(config, store, 0), tmp_path)
    policies_json = share_policies(config, store, known)

    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "visitor"))
    found = fetch_policies(config, Store.open(config.store.root), json.loads(json.dumps(policies_json)))
    assert (found.start.digest, found.behaviour.digest) == (known.start.digest, known.behaviour.digest)
    assert ChatFormat.load(found.start.path).stop_ids == ChatFormat.load(known.start.path).stop_ids
    fetched = [path.name for path in (tmp_path / "visitor").rglob("*") if path.is_file()]
    assert "state.safetensors" not in fetched
    if kind == "vllm_server":
        assert not [name for name in fetched if name.endswith(".safetensors")]
        assert found.behaviour == known.behaviour  # the path is the servers'
        return
    assert snapshot_digest(found.start.path) == known.start.digest
    assert snapshot_digest(found.behaviour.path) == known.behaviour.digest
    assert found.behaviour_folder is not None
    assert (found.behaviour_folder / "canary.json").read_text() == "{}"


def test_a_policy_that_nobody_put_there_is_said(endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(make_bucket(endpoint, "none", tmp_path, monkeypatch), "engine.kind=vllm_server")
    with pytest.raises(StoreError, match=r"tokenizer of policy 0123.* not in .*run the iteration again"):
        fetch_policies(
            config, Store.open(config.store.root), {"start": "0123", "behaviour": {"path": "p", "digest": "d"}}
        )
