"""vLLM servers that come and go in the midst of it: health checks, names that resolve to more, policies pulled or
adopted."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.vllm.server import VllmServer
from r3l.errors import EngineError
from tests.unit.scripted_vllm import STOP, ScriptedVllm, scripted_reply

FULL = PolicySnapshot("policies/7", "d7")
ADAPTER = PolicySnapshot("policies/8", "d8", "policies/base")


class Hanging(ScriptedVllm):
    """A server that can stop answering without closing a connection, as a host whose network is cut."""

    def __init__(self, **options: Any) -> None:
        self.cut = threading.Event()
        self.back = threading.Event()
        super().__init__(**options)

    def answer(self, route: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self.cut.is_set():
            self.back.wait(20)
        return super().answer(route, body)


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """Whatever is put in is stopped or closed."""
    things: list[Any] = []
    yield things
    for thing in reversed(things):
        getattr(thing, "back", threading.Event()).set()
        thing.close() if isinstance(thing, VllmServer) else thing.stop()


def engine_of(made: list[Any], urls: str, **settings: Any) -> VllmServer:
    engine = VllmServer(
        VllmServerSettings(urls=urls, **{"timeout_s": 15, "health_s": 0.1, **settings}), PolicySettings()
    )
    made.append(engine)
    return engine


def sampling() -> Sampling:
    return Sampling(1.0, 20, 3, (STOP,))


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("not in time")


def test_calls_of_a_host_that_fell_silent_are_made_elsewhere_and_it_is_won_back(made: list[Any]) -> None:
    servers = [Hanging(), Hanging()]
    made += servers
    engine = engine_of(made, ",".join(server.url for server in servers))
    engine.load_policy(FULL)
    first = engine.complete("iteration=0/task=3/base=0/turn=0", [5, 6], sampling()).result(timeout=60)
    [at] = [server for server in servers if any(route == "/v1/completions" for route, _ in server.bodies)]
    at.cut.set()
    again = engine.complete("iteration=0/task=3/base=0/turn=1", [5, 6], sampling()).result(timeout=60)
    assert replace(again, failures=()) == first
    assert again.failures  # the check that found the silent host
    assert engine.counts()["retried_calls"] == 1
    at.cut.clear()
    at.back.set()
    until(lambda: len(engine.fleet.healthy) == 2)


def test_one_missed_check_is_no_loss(made: list[Any]) -> None:
    server = Hanging()
    made.append(server)
    engine = engine_of(made, server.url, health_s=1)
    engine.load_policy(FULL)
    (one,) = engine.fleet.servers
    server.cut.set()
    until(lambda: one.missed == 1)
    server.cut.clear()
    server.back.set()
    until(lambda: one.missed == 0)
    assert engine.fleet.healthy == [one]
    assert not engine.fleet.revivals


def test_a_name_stands_for_servers_that_come_and_go(made: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    servers = [Hanging(), Hanging()]
    made += servers
    engine = engine_of(made, "dns://engines:8000")
    behind = {servers[0].url}

    async def resolve(name: str) -> set[str]:
        assert name == "dns://engines:8000"
        return set(behind)

    monkeypatch.setattr(engine.fleet, "resolve", resolve)
    engine.load_policy(FULL)
    assert [server.url for server in engine.fleet.healthy] == [servers[0].url]
    behind.add(servers[1].url)  # scaled up in the midst of an iteration
    until(lambda: len(engine.fleet.healthy) == 2)
    assert servers[1].weights == "policies/7"
    behind.discard(servers[0].url)  # and down again
    servers[0].cut.set()
    until(lambda: [server.url for server in engine.fleet.servers] == [servers[1].url])
    reply = engine.complete("a", [5, 6, 7], sampling()).result(timeout=60)
    assert reply.token_ids == scripted_reply([5, 6, 7], "policies/7", 20, 3)


def test_a_name_is_resolved_as_the_system_does(made: list[Any]) -> None:
    server = ScriptedVllm()
    made.append(server)
    port = server.url.rpartition(":")[2]
    engine = engine_of(made, f"dns://127.0.0.1:{port}")
    engine.load_policy(FULL)
    assert [one.url for one in engine.fleet.healthy] == [server.url]
    nobody = engine_of(made, "dns://no-such-name.invalid:8000", timeout_s=1)
    with pytest.raises(EngineError, match="no server runs the policy"):
        nobody.load_policy(FULL)


def test_a_later_host_takes_servers_as_they_are_and_loads_what_is_lost(made: list[Any]) -> None:
    server = ScriptedVllm()
    made.append(server)
    engine_of(made, server.url).load_policy(ADAPTER)
    before = [route for route, _ in server.bodies].count("/v1/load_lora_adapter")
    visitor = engine_of(made, server.url, adopt=True)
    visitor.load_policy(ADAPTER)
    assert [route for route, _ in server.bodies].count("/v1/load_lora_adapter") == before == 1
    assert visitor.complete("a", [5, 6], sampling()).result(timeout=60).token_ids == scripted_reply(
        [5, 6], "policies/8", 20, 3
    )
    server.adapters.clear()  # restarted: now whoever notices loads it
    assert visitor.complete("a", [5, 6], sampling()).result(timeout=60).token_ids == scripted_reply(
        [5, 6], "policies/8", 20, 3
    )
    assert server.adapters == {"r3l-d8": "policies/8"}
    other = PolicySnapshot("policies/9", "d9", "policies/base")
    visitor.load_policy(other)  # not there: loaded
    assert server.adapters["r3l-d9"] == "policies/9"


def test_servers_pull_the_policy_out_of_the_store(made, tmp_path, monkeypatch):
    from flows.placement.puller import Puller, PullerServer
    from r3l.store.policies.snapshots import snapshot_digest
    from r3l.store.stage import Store

    place = "demo/policies/iteration=00003/policy"
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "model.safetensors").write_bytes(b"weights")
    digest = snapshot_digest(tmp_path / place)
    http = PullerServer(("127.0.0.1", 0), Puller(Store.open(str(tmp_path))), "secret")
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("R3L_ENGINE_KEY", "secret")
    server = ScriptedVllm(key="secret")
    made.append(server)
    engine = engine_of(made, server.url, puller_port=http.server_address[1], timeout_s=3)
    engine.load_policy(PolicySnapshot("/not/on/that/host", digest, None, place))
    assert server.weights == str(tmp_path / place)
    for asked, at, said in (("f" * 16, place, f"holds {digest}"), (digest, "../../etc", "place")):
        wrong = PolicySnapshot("p", asked, None, at)
        with pytest.raises(EngineError, match=said):
            engine.load_policy(wrong)
    monkeypatch.setenv("R3L_ENGINE_KEY", "wrong")
    server.key = "wrong"
    with pytest.raises(EngineError, match="status 401"):
        engine_of(made, server.url, puller_port=http.server_address[1]).load_policy(
            PolicySnapshot("p", digest, None, place)
        )
    http.shutdown()
    http.server_close()
