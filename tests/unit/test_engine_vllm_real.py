"""A real vLLM server on loopback: full weights and an adapter loaded at run time, ids, log-probs, JSON by schema; and
two iterations that sample from it, with its weights in step with the trainer's.

Needs vLLM's own environment (infra/engine/install.sh) in .venv-vllm, or named by ENGINE_ENV; a minute to start, on a
core that twenty other processes use a quarter of an hour.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch

from flows.cli.settings import settings
from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.canary import check_canary, compare
from r3l.engines.vllm.own_servers import OwnServers
from r3l.engines.vllm.routes import adapter_name
from r3l.engines.vllm.server import VllmServer
from r3l.errors import EngineError
from r3l.pipeline import preflight
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.system.ports import free_port
from tests.support.answers import ask
from tests.unit.chat_tokenizers import family_tokenizer
from tests.unit.engine_canaries import caught, updated_adapter, updated_weights
from tests.unit.engine_policies import plain_logprobs, plain_model, tiny_policy
from tests.unit.test_engine_own_servers import group_of, kill_vllm, leaders, until
from tests.unit.test_engine_reuse import adapted, adapter_on

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = Path(os.environ.get("ENGINE_ENV", ROOT / ".venv-vllm"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not (ENVIRONMENT / "bin/python").exists(), reason="no vLLM environment: infra/engine/install.sh"
    ),
]
CONTEXT = 2048
KEY = "key-of-the-real-server"
WORLD = "tests.support.lots:LotsWorld"
# fmt: off
SMALL = (
    "policy.adapter=lora", "policy.dtype=float32", f"policy.context_tokens={CONTEXT}", "training.dtype=float32",
    "training.device=cpu", "training.processes=0", "training.learning_rate=3e-3", "environment.reply_tokens=24",
    "environment.max_turns=2", "environment.workers=1", "rollout.tasks=2", "rollout.group_size=4",
    "method.guidance=oracle",
)
# fmt: on
SAMPLED = """
SELECT trajectories.policy, kind, turn, context_ids, response_ids, response_logprobs
FROM turns JOIN trajectories USING (trajectory_id, iteration) WHERE iteration = {} AND kind IN ('base', 'retry')
"""
PROMPT = [10, 40, 77, 23, 5, 61, 90, 14, 33, 52]


def served_policy(folder: Path, seed: int) -> PolicySnapshot:
    tokenizer = family_tokenizer("smollm2")
    snapshot = tiny_policy(
        folder, seed=seed, vocab_size=320, hidden_size=64, head_dim=32, num_attention_heads=2, num_key_value_heads=1,
        eos_token_id=tokenizer.eos_token_id, initializer_range=0.2, max_position_embeddings=CONTEXT,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    model = plain_model(snapshot)
    with torch.no_grad():  # it ends a reply now and then, about one token in ten
        states = model.model(torch.randint(300, (16, 60))).last_hidden_state.flatten(0, 1)
        ends = torch.linalg.lstsq(states, torch.full((len(states), 1), 5.0)).solution[:, 0]
        model.lm_head.weight[tokenizer.eos_token_id] = ends
    model.save_pretrained(folder)
    return snapshot


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PolicySnapshot]:
    folder = tmp_path_factory.mktemp("policies")
    start, later = served_policy(folder / "start", 0), served_policy(folder / "later", 1)
    return {
        "start": start,
        "later": later,
        "adapter": adapter_on(later, folder / "adapter"),
        "other": adapter_on(later, folder / "other", 2),
    }


@pytest.fixture(scope="module")
def engine(policies: dict[str, PolicySnapshot]) -> Iterator[VllmServer]:
    port = free_port()
    server = subprocess.Popen(
        [ROOT / "infra/engine/serve.sh", policies["start"].path, str(port), "--dtype", "float32", "--enforce-eager"],
        env=os.environ
        | {"ENGINE_ENV": str(ENVIRONMENT), "CONTEXT": str(CONTEXT), "HF_HUB_OFFLINE": "1", "R3L_ENGINE_KEY": KEY},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1500):
            assert server.poll() is None, "the server ended before it was healthy"
            try:
                if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(1)
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("R3L_ENGINE_KEY", KEY)
            engine = VllmServer(VllmServerSettings(urls=url), PolicySettings())
        yield engine
        engine.close()
    finally:
        server.terminate()
        server.wait(timeout=60)


def check(engine: VllmServer, trainer: torch.nn.Module) -> None:
    assert compare(engine, PROMPT, plain_logprobs(trainer, PROMPT).tolist(), 5e-3) < 5e-3
    reply = engine.complete("iteration=0/task=0", PROMPT, Sampling(0.0, 12, 0, (2,))).result(timeout=1500)
    scored = plain_logprobs(trainer, PROMPT + reply.token_ids)[len(PROMPT) - 1 :]
    torch.testing.assert_close(torch.tensor(reply.logprobs, dtype=torch.float64), scored, atol=5e-3, rtol=0)


def test_full_weights_and_adapters_are_loaded_at_run_time(engine, policies):
    engine.load_policy(policies["later"])
    assert engine.context_limit == CONTEXT
    check(engine, plain_model(policies["later"]))
    with pytest.raises(EngineError, match="does not run the policy"):
        compare(engine, PROMPT, plain_logprobs(plain_model(policies["start"]), PROMPT).tolist(), 5e-3)
    engine.load_policy(policies["adapter"])
    check(engine, adapted(policies["later"], policies["adapter"]))
    engine.load_policy(policies["later"])
    check(engine, plain_model(policies["later"]))


def test_a_planted_policy_is_caught_by_its_canary(engine, policies, tmp_path):
    """The server answers that it has loaded the new policy by its name; what it has read are other weights."""
    engine.load_policy(policies["later"])
    update = updated_adapter(policies["later"], tmp_path)
    for path, said in (
        (update.before.path, "the policy from before the last update"),
        (policies["other"].path, "does not run the policy"),
        (update.before.path, "the policy from before the last update"),
    ):
        caught(engine, update, update.planted(path), said)
        engine.load_policy(
            replace(policies["adapter"], digest="between")
        )  # else the client knows the name, and asks for nothing
    engine.load_policy(update.after)
    difference = check_canary(engine, update.canary, "float32")
    assert difference is not None
    assert difference < 1e-4
    whole = updated_weights(policies["start"], tmp_path / "whole")
    caught(engine, whole, whole.planted(whole.before.path), "the policy from before the last update")
    caught(engine, whole, whole.planted(policies["later"].path), "does not run the policy")
    engine.load_policy(whole.after)
    assert check_canary(engine, whole.canary, "float32") is not None


def test_seeds_stop_tokens_and_schemas_are_respected(engine: VllmServer, policies: dict[str, PolicySnapshot]) -> None:
    engine.load_policy(policies["start"])
    how = Sampling(1.0, 20, 11, (2,))
    first, again = (engine.complete(f"{k}", PROMPT, how).result(timeout=60) for k in range(2))
    assert first.token_ids == again.token_ids
    schema = {
        "type": "object",
        "properties": {"pivot": {"enum": [0, 1, 2]}},
        "required": ["pivot"],
        "additionalProperties": False,
    }
    tokenizer = family_tokenizer("smollm2")
    stop = (tokenizer.eos_token_id,)  # after the whole JSON the server allows the tokenizer's own end alone
    held = engine.complete("held", PROMPT, Sampling(1.0, 60, 3, stop, schema)).result(timeout=60)
    assert held.finish_reason == "stop"
    text = tokenizer.decode(held.token_ids[:-1])
    assert text == json.dumps(json.loads(text))
    assert json.loads(text)["pivot"] in (0, 1, 2)
    assert engine.counts()["retried_calls"] == 0


@pytest.mark.parametrize("start", ["start", "adapter"])
def test_iterations_sample_from_the_weights_that_the_trainer_wrote(engine, policies, tmp_path, monkeypatch, start):
    """From whole weights, and from an adapter whose base is not what the server runs; then from the adapter that the
    first update wrote."""
    monkeypatch.setenv("R3L_ENGINE_KEY", KEY)
    engine.load_policy(policies["start"])
    [server] = engine.fleet.servers
    given = [*SMALL, f"engine.urls={server.url}", f"store.root={tmp_path}"]
    config = settings("lots", "paper", "r3l", policies[start].path, WORLD, "vllm_server", given)
    store = preflight.check(config)
    for number in range(2):
        with open_iteration(config, store, number) as bench:
            run_stages(bench)
    first, second = ask(store, "SELECT parent_policy, policy, canary_error, path FROM updates ORDER BY iteration")
    assert first["canary_error"] is None or first["canary_error"] != first["canary_error"]
    assert second["canary_error"] < 1e-3
    assert first["parent_policy"] != first["policy"] == second["parent_policy"] != second["policy"]
    base = policies["later"] if policies[start].base_path else policies[start]
    written = PolicySnapshot(str(tmp_path / "lots" / first["path"]), first["policy"], base.path)
    trainers = [plain_model(base) if base.path == policies[start].path else adapted(base, policies[start])]
    for number, (digest, trainer) in enumerate(
        zip((first["parent_policy"], first["policy"]), [*trainers, adapted(base, written)], strict=True)
    ):
        rows = ask(store, SAMPLED.format(number))
        assert {row["policy"] for row in rows} == {digest}
        assert {row["kind"] for row in rows} == {"base", "retry"}
        for row in (row for row in rows if row["turn"] == 0):
            scored = plain_logprobs(trainer, row["context_ids"] + row["response_ids"])[len(row["context_ids"]) - 1 :]
            assert row["response_logprobs"] == pytest.approx(scored.tolist(), abs=5e-3)
    names = httpx.get(f"{server.url}/v1/models", headers={"Authorization": f"Bearer {KEY}"}).json()["data"]
    assert adapter_name(written) in {model["id"] for model in names}


@pytest.mark.parametrize(
    "route", ["/v1/models", "/v1/load_lora_adapter", "/collective_rpc", "/reset_prefix_cache", "/metrics", "/version"]
)
def test_every_route_of_the_real_server_asks_for_the_key(engine: VllmServer, route: str) -> None:
    url = f"{engine.fleet.servers[0].url}{route}"
    for method in ("GET", "POST"):
        assert httpx.request(method, url, json={}).status_code == 401
        assert httpx.request(method, url, json={}, headers={"Authorization": "Bearer another"}).status_code == 401
    assert httpx.get(url, headers={"Authorization": f"Bearer {KEY}"}).status_code in (200, 405)


def test_a_run_starts_it_itself_and_starts_it_again(policies, tmp_path, monkeypatch):
    """As a child: from the first policy on, with the next one's weights, after a SIGKILL of the server, to its end."""
    monkeypatch.setenv("R3L_VLLM_PYTHON", str(ENVIRONMENT.absolute() / "bin/python"))
    monkeypatch.setenv("R3L_VLLM_OPTIONS", "--enforce-eager")
    settings = VllmServerSettings(gpus="0", memory_share=0.2, start_s=1500, timeout_s=1500)
    own = OwnServers(settings, PolicySettings(context_tokens=256))
    own.attach(tmp_path, lambda *_: None)
    try:
        own.load_policy(policies["start"])
        check(own, plain_model(policies["start"]))
        own.load_policy(policies["later"])
        [first] = leaders(own)
        kill_vllm(own)
        until(lambda: leaders(own) != [first], "it was not started again", 1500)
        own.complete("waits for it", PROMPT, Sampling(0.0, 4, 0, (2,))).result(timeout=1500)
        check(own, plain_model(policies["later"]))
        [second] = leaders(own)
    finally:
        own.close()
    until(lambda: not group_of(first) and not group_of(second), "processes are left")
