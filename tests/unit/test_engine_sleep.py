"""Servers that somebody else started, put to sleep for an update: woken by the next policy or by the end of the run."""

from collections.abc import Iterator
from typing import Any

import pytest

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.vllm.server import VllmServer
from r3l.errors import EngineError
from tests.unit.scripted_vllm import STOP, ScriptedVllm

FULL = PolicySnapshot("policies/7", "d7")
ADAPTER = PolicySnapshot("policies/8", "d8", "policies/base")


@pytest.fixture
def servers() -> Iterator[list[ScriptedVllm]]:
    running = [ScriptedVllm(), ScriptedVllm()]
    yield running
    for server in running:
        server.stop()


def engine_of(*servers: ScriptedVllm, **settings: Any) -> VllmServer:
    urls = ",".join(server.url for server in servers)
    return VllmServer(VllmServerSettings(urls=urls, timeout_s=20, **settings), PolicySettings())


def asked(server: ScriptedVllm) -> list[str]:
    quiet = ("/health", "/v1/models", "/is_sleeping")
    return [route for route, _ in server.bodies if route not in quiet]


def test_level_2_takes_its_weights_from_the_next_policy(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(*servers, sleep=2)
    engine.sleep()  # nothing was loaded: nobody is asked
    assert asked(servers[0]) == []
    engine.load_policy(FULL)
    for server in servers:
        server.bodies.clear()
    engine.sleep()
    assert all(server.missing == {"weights", "kv_cache"} for server in servers)
    engine.load_policy(PolicySnapshot("policies/9", "d9"))
    routes = ["/sleep?level=2", "/wake_up?tags=weights", "/collective_rpc", "/wake_up?tags=kv_cache"]
    assert [asked(server) for server in servers] == [[*routes, "/reset_prefix_cache"]] * 2
    assert all(server.weights == "policies/9" and not server.missing for server in servers)
    engine.close()


def test_an_adapter_that_level_2_lost_is_loaded_again_on_its_base(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(servers[0], sleep=2)
    engine.load_policy(ADAPTER)
    engine.sleep()
    engine.load_policy(ADAPTER)
    assert (servers[0].weights, servers[0].adapters) == ("policies/base", {"r3l-d8": "policies/8"})
    engine.close()


def test_the_end_of_a_run_wakes_servers_that_are_not_its_own(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(*servers, sleep=1)
    engine.load_policy(FULL)
    engine.sleep()
    engine.close()
    assert not any(server.missing for server in servers)


def test_a_server_that_can_not_sleep_is_said(servers: list[ScriptedVllm]) -> None:
    servers[1].sleeps = False
    engine = engine_of(*servers, sleep=1)
    engine.load_policy(FULL)
    with pytest.raises(EngineError, match=f"{servers[1].url} did not go to sleep: .*not enabled.*--enable-sleep-mode"):
        engine.sleep()
    engine.close()


def test_a_server_that_is_gone_holds_no_memory(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(*servers, sleep=1)
    engine.load_policy(FULL)
    servers[1].stop()
    engine.sleep()
    assert servers[0].missing
    engine.load_policy(FULL)
    sampled = engine.complete("a", [5, 6, 7], Sampling(1.0, 20, 3, (STOP,))).result(timeout=20)
    assert sampled.finish_reason == "stop"
    engine.close()


def test_without_the_setting_nobody_sleeps(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(servers[0])
    engine.load_policy(FULL)
    engine.sleep()
    assert not servers[0].missing
    engine.close()
