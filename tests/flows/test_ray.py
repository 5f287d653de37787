"""Shards on a Ray cluster of two nodes, one of which is lost in the midst of it: the same rows as in one process.
Minutes long."""

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.flows.scripted import deterministic
from tests.flows.small import served_config
from tests.support.scripted_player import ScriptedPlayer

pytest.importorskip("prefect_ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.usefixtures("prefect_server")]
PLAYED = ["environment.max_turns=12", "environment.workers=1", "rollout.tasks=4", "training.processes=1"]
START_S = 300
QUIET = {"include_dashboard": False, "include_log_monitor": False}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch):
    """A Ray cluster that asks for a key, as infra/README.md says."""
    for name, value in {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(24),
    }.items():
        monkeypatch.setenv(name, value)
    import ray  # first of all: its parts alone are imported only half
    from ray._private import services
    from ray.cluster_utils import Cluster

    assert ray.is_initialized() is False
    monkeypatch.setattr(services, "get_node", patient(services.get_node))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **QUIET})
    yield made
    made.shutdown()


def patient(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """Ray gives a node 30 s to start, which is little on a machine with other work."""

    def ask(*arguments: Any) -> Any:
        end = time.monotonic() + START_S
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(1)

    return ask


def digests(root: Path) -> dict[str, str]:
    return {
        f"{ref.stage}/{ref.shard}": ref.digest
        for ref in Store.open(str(root)).stages("small")
        if deterministic(ref.stage)
    }


def played(root: Path, server: ScriptedPlayer, *assignments: str) -> dict[str, Any]:
    from flows.iterate import iterate

    return iterate(served_config(root, server.url, *PLAYED, *assignments))


def test_the_same_shards_on_two_nodes_and_after_one_is_lost(cluster: Any, tmp_path: Path) -> None:
    server = ScriptedPlayer(pause=0.2)
    second = cluster.add_node(num_cpus=1, **QUIET)
    lost = threading.Event()

    def lose() -> None:
        """Once a shard has its bases: another one is at work on each node."""
        while not list((tmp_path / "ray").glob("small/iteration=00000/base/shard=*/stage.json")):
            time.sleep(0.05)
        cluster.remove_node(second, allow_graceful=False)
        lost.set()

    threading.Thread(target=lose, daemon=True).start()
    played(tmp_path / "ray", server, "placement.shards=ray", f'placement.ray_address="{cluster.address}"')
    assert lost.is_set()
    played(tmp_path / "here", server)
    server.stop()
    assert digests(tmp_path / "ray") == digests(tmp_path / "here")
    assert len(digests(tmp_path / "ray")) == 1 + 3 * 4
    assert check_run(Store.open(str(tmp_path / "ray")), "small") == []
