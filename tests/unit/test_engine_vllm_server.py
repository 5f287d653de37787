"""The vLLM client against a scripted server with the same routes: ids, policies, several servers, lost servers,
keys."""

import gc
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import AS_DUMPED, Completion, PolicySnapshot, Sampling
from r3l.engines.canary import check_canary, compare
from r3l.engines.vllm.server import VllmServer
from r3l.errors import EngineError, Interrupted, ServerAway
from tests.unit.scripted_vllm import STOP, ScriptedVllm, scripted_logprob, scripted_reply

FULL = PolicySnapshot("policies/7", "d7")
ADAPTER = PolicySnapshot("policies/8", "d8", "policies/base")


@pytest.fixture
def servers() -> Iterator[list[ScriptedVllm]]:
    scripted = [ScriptedVllm(), ScriptedVllm()]
    yield scripted
    for server in scripted:
        server.stop()


def engine_of(*servers: ScriptedVllm, **settings: Any) -> VllmServer:
    urls = ",".join(server.url for server in servers)
    engine = make_engine(VllmServerSettings(urls=urls, **{"timeout_s": 5, **settings}), PolicySettings())
    assert isinstance(engine, VllmServer)
    return engine


def sampling(max_tokens: int = 20, seed: int = 3, schema: dict[str, Any] | None = None) -> Sampling:
    return Sampling(1.0, max_tokens, seed, (STOP,), schema)


def test_ids_in_ids_and_logprobs_out(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(servers[0])
    engine.load_policy(FULL)
    assert engine.context_limit == 64
    reply = engine.complete("iteration=0/task=1/base=0/turn=0", [5, 6, 7], sampling(schema={"type": "object"})).result(
        timeout=10
    )
    logprobs = [scripted_logprob("policies/7", k) for k in range(5)]
    assert reply == Completion(scripted_reply([5, 6, 7], "policies/7", 20, 3), logprobs, "stop", 1)
    route, body = servers[0].bodies[-1]
    assert route == "/v1/completions"
    asked = {
        "prompt": [5, 6, 7], "seed": 3, "temperature": 1.0, "stop_token_ids": [STOP], "return_token_ids": True,
        "structured_outputs": {"json": {"type": "object", "x-guidance": AS_DUMPED}}, "top_p": 1.0, "top_k": -1,
        "min_p": 0.0, "repetition_penalty": 1.0,
    }  # fmt: skip
    assert body | asked == body
    assert engine.counts() | {"busy_seconds": 0} == {
        "requests": 1, "prompt_tokens": 3, "cached_tokens": 1, "sampled_tokens": 5, "retried_calls": 0,
        "busy_seconds": 0,
    }  # fmt: skip
    engine.close()


def test_length_and_context_are_told_apart(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(servers[0])
    engine.load_policy(FULL)
    assert engine.complete("a", [5, 6, 7], sampling(2)).result(timeout=10).finish_reason == "length"
    nearly_full = [1] * 62
    reply = engine.complete("b", nearly_full, sampling(20)).result(timeout=10)
    assert (len(reply.token_ids), reply.finish_reason) == (2, "context")
    assert engine.complete("c", [1] * 64, sampling()).result(timeout=10) == Completion([], [], "context")
    engine.close()


def test_each_snapshot_is_loaded_on_every_server(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(*servers)
    engine.load_policy(FULL)
    assert [server.weights for server in servers] == ["policies/7"] * 2
    assert all("/reset_prefix_cache" in [route for route, _ in server.bodies] for server in servers)
    engine.load_policy(ADAPTER)
    engine.load_policy(PolicySnapshot("policies/9", "d9", "policies/base"))
    assert [server.adapters for server in servers] == [{"r3l-d9": "policies/9"}] * 2
    reply = engine.complete("a", [5, 6, 7], sampling()).result(timeout=10)
    assert reply.token_ids == scripted_reply([5, 6, 7], "policies/9", 20, 3)
    engine.close()


def test_the_canary_asks_every_server(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(*servers)
    engine.load_policy(FULL)
    ids, trainer = [4, 5, 6], [scripted_logprob("policies/7", place) for place in range(2)]
    assert engine.score(ids) == trainer
    assert compare(engine, ids, trainer, 0.01) == 0
    servers[1].weights = "policies/stale"
    with pytest.raises(EngineError, match=f"{servers[1].url} .*does not run the policy"):
        compare(engine, ids, trainer, 0.01)
    engine.close()


@pytest.mark.parametrize("asked", [FULL, ADAPTER], ids=["full weights", "adapter"])
@pytest.mark.parametrize(
    ("instead", "said"),
    [("policies/6", "runs the policy from before the last update"), ("policies/3", "does not run the policy")],
    ids=["stale", "wrong"],
)
def test_a_planted_policy_is_caught_on_any_server(servers, tmp_path, asked, instead, said):
    """A server that answers that it has loaded what was asked for, and runs the policy before it, or another run's."""
    engine, ids, canary = engine_of(*servers), [4, 5, 6], tmp_path / "canary.json"
    after, before = ([scripted_logprob(path, place) for place in range(2)] for path in (asked.path, "policies/6"))
    canary.write_text(json.dumps({"token_ids": ids, "logprobs": after, "before": before}))
    engine.load_policy(asked)
    assert check_canary(engine, canary, "bfloat16") == 0
    servers[1].instead = instead
    engine.load_policy(replace(asked, digest="loaded again"))
    with pytest.raises(EngineError, match=f"{servers[1].url} {said}"):
        check_canary(engine, canary, "bfloat16")
    engine.close()


def test_a_server_that_dies_costs_a_recorded_retry_and_comes_back_with_the_policy(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(*servers)
    engine.load_policy(ADAPTER)
    servers[0].dying = servers[1].dying = 1
    calls = [engine.complete(f"iteration=0/task={k}", [5, 6, k], sampling()) for k in range(12)]
    for k, call in enumerate(calls):
        assert call.result(timeout=20).token_ids == scripted_reply([5, 6, k], "policies/8", 20, 3)
    retried = sum(len(call.result().failures) for call in calls)
    assert retried == engine.counts()["retried_calls"] >= 1
    servers[0].adapters.clear()  # as after a restart: the next call finds its adapter gone, and loads it again
    servers[1].adapters.clear()
    reply = engine.complete("iteration=0/task=0", [5, 6, 0], sampling()).result(timeout=20)
    assert reply.token_ids == scripted_reply([5, 6, 0], "policies/8", 20, 3)
    assert any(server.adapters == {"r3l-d8": "policies/8"} for server in servers)
    engine.close()


def test_calls_of_a_task_stay_on_a_server_and_load_is_spread(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(*servers)
    engine.load_policy(FULL)
    for turn in range(6):
        engine.complete(f"iteration=0/task=3/base=1/turn={turn}", [turn], sampling()).result(timeout=10)
    of_task = [sum(route == "/v1/completions" for route, _ in server.bodies) for server in servers]
    assert sorted(of_task) == [0, 6]
    for call in [engine.complete(f"iteration=0/task={k}", [k], sampling()) for k in range(40)]:
        call.result(timeout=10)
    assert min(sum(route == "/v1/completions" for route, _ in server.bodies) for server in servers) >= 10
    engine.close()


def test_no_server_left_is_an_engine_error_and_not_a_hang(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(servers[0], retries=1, timeout_s=1)
    engine.load_policy(FULL)
    servers[0].dying = 1000
    with pytest.raises((EngineError, ServerAway), match=r"no server (answered|runs)"):  # by how soon it is back
        engine.complete("a", [1, 2], sampling()).result(timeout=20)
    engine.close()
    with pytest.raises(Interrupted, match="closed"):
        engine.complete("b", [1, 2], sampling()).result(timeout=10)


def test_servers_that_are_away_are_no_fault_of_the_request(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(servers[0], retries=1, timeout_s=1)
    engine.load_policy(FULL)
    servers[0].stop()
    with pytest.raises(ServerAway, match="no server runs the policy after 1 s"):
        engine.complete("a", [1, 2], sampling()).result(timeout=20)
    engine.close()


def test_calls_that_were_given_up_say_nothing_when_the_engine_closes(servers: list[ScriptedVllm], caplog: Any) -> None:
    engine = engine_of(servers[0], retries=1, timeout_s=20)
    engine.load_policy(FULL)
    servers[0].stop()
    calls = [engine.complete(f"{k}", [1, 2], sampling()) for k in range(4)]
    time.sleep(0.1)
    assert all(call.cancel() for call in calls)
    engine.close()
    del calls, engine
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_closing_engine_fails_its_open_calls_as_interrupted(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(servers[0], retries=1, timeout_s=20)
    engine.load_policy(FULL)
    servers[0].stop()
    call = engine.complete("a", [1, 2], sampling())
    time.sleep(0.1)
    engine.close()
    with pytest.raises(Interrupted, match="closed before"):
        call.result(timeout=60)


def test_refusals_say_what_to_do(servers: list[ScriptedVllm], monkeypatch: pytest.MonkeyPatch) -> None:
    servers[0].development = False
    engine = engine_of(servers[0])
    with pytest.raises(EngineError, match="VLLM_SERVER_DEV_MODE=1"):
        engine.load_policy(FULL)
    engine.close()
    nobody = make_engine(VllmServerSettings(urls="http://127.0.0.1:9", timeout_s=2), PolicySettings())
    with pytest.raises(EngineError, match=r"infra/engine/serve.sh"):
        nobody.load_policy(FULL)
    nobody.close()
    servers[1].key = "secret"
    keyless = engine_of(servers[1])
    with pytest.raises(EngineError, match="status 401"):
        keyless.load_policy(FULL)
    keyless.close()
    monkeypatch.setenv("R3L_ENGINE_KEY", "secret")
    keyed = engine_of(servers[1])
    keyed.load_policy(FULL)
    keyed.close()


def test_an_answer_that_breaks_the_contract_is_an_error(servers: list[ScriptedVllm]) -> None:
    engine = engine_of(servers[0])
    engine.load_policy(FULL)
    servers[0].finish = "stop"
    with pytest.raises(EngineError, match="stopped after token"):
        engine.complete("a", [5, 6, 7], sampling(2)).result(timeout=10)
    engine.close()
