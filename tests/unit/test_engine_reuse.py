"""What is computed once: later turns, retries, shared prompts; and that forgetting it changes no reply."""

import gc
import random
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from r3l.engines.base import Engine, PolicySnapshot, Sampling
from r3l.engines.canary import compare
from r3l.errors import EngineError
from tests.unit.engine_policies import STOP, plain_logprobs, plain_model, tiny_policy
from tests.unit.test_engine_transformers_local import random_prompts, sampling, started


def play(engine: Engine, opening: list[int], seed: int, turns: int) -> tuple[list[list[int]], list[int]]:
    """Replies and context lengths of an episode whose observations depend on its seed alone."""
    chance = random.Random(seed)
    context, replies, lengths = list(opening), [], []
    for turn in range(turns):
        reply = engine.complete(
            f"task={seed}/turn={turn}", context, Sampling(1.0, 8, 100 * seed + turn, (STOP,))
        ).result(timeout=60)
        replies.append(reply.token_ids)
        lengths.append(len(context))
        context = context + reply.token_ids + [chance.randrange(STOP) for _ in range(4)]
    return replies, lengths


def test_later_turns_and_retries_are_not_computed_again(tmp_path: Path) -> None:
    engine = started(tiny_policy(tmp_path))
    opening = random_prompts(1, shared=200)[0]
    bases = [play(engine, opening, seed, 5) for seed in range(4)]
    before = engine.counts()
    with ThreadPoolExecutor(4) as threads:
        again = list(threads.map(lambda seed: play(engine, opening, seed, 8), range(4)))
    spent = {name: value - before[name] for name, value in engine.counts().items()}
    assert [replies[:5] for replies, _ in again] == [replies for replies, _ in bases]
    assert spent["cached_tokens"] / spent["prompt_tokens"] >= 0.95
    engine.close()


def test_a_later_turn_computes_at_most_the_last_sampled_token_and_what_is_new(tmp_path: Path) -> None:
    engine = started(tiny_policy(tmp_path))
    prompt = random_prompts(1, shared=50)[0]
    first = engine.complete("turn=0", prompt, sampling(1.0)).result(timeout=60)
    later = prompt + first.token_ids + [5, 6, 7]
    second = engine.complete("turn=1", later, sampling(1.0)).result(timeout=60)
    assert first.cached_tokens == 0
    assert second.cached_tokens in (len(prompt) + len(first.token_ids) - 1, len(prompt) + len(first.token_ids))
    engine.close()


@pytest.mark.parametrize("cache_tokens", [0, 90, 400])
def test_eviction_changes_no_reply(tmp_path: Path, cache_tokens: int) -> None:
    snapshot = tiny_policy(tmp_path)
    openings = random_prompts(5, shared=60)
    replies = []
    for tokens in (cache_tokens, 100_000):
        engine = started(snapshot, cache_tokens=tokens)
        with ThreadPoolExecutor(5) as threads:
            replies.append(
                list(threads.map(lambda seed, engine=engine: play(engine, openings[seed], seed, 4)[0], range(5)))
            )
        batch = engine.batch
        assert batch is not None
        assert batch.tree.tokens <= tokens
        engine.close()
    assert replies[0] == replies[1]


def test_long_prompts_beside_short_ones_have_the_logprobs_of_a_plain_forward(tmp_path: Path) -> None:
    """Prompts over the limit of one step, with and without a stored part: the fused attention and its mask."""
    snapshot = tiny_policy(tmp_path, max_position_embeddings=4096)
    engine = started(snapshot, context_tokens=4096)
    model = plain_model(snapshot)
    long = random_prompts(1, shared=1500)[0]
    prompts = [
        long,
        long[:700] + random_prompts(1, shared=300, seed=3)[0],
        *random_prompts(4, shared=20, seed=5),
        long[:900],
    ]
    for call in [engine.complete(f"{k}", prompt, sampling(max_tokens=6)) for k, prompt in enumerate(prompts)]:
        call.result(timeout=60)
    for prompt, call in [(prompt, engine.complete("again", prompt, sampling(max_tokens=6))) for prompt in prompts]:
        reply = call.result(timeout=60)
        expected = plain_logprobs(model, prompt + reply.token_ids)[len(prompt) - 1 :]
        torch.testing.assert_close(torch.tensor(reply.logprobs, dtype=torch.float64), expected, atol=5e-5, rtol=0)
    torch.testing.assert_close(
        torch.tensor(engine.score(long), dtype=torch.float64), plain_logprobs(model, long), atol=5e-5, rtol=0
    )
    engine.close()


def test_an_adapter_is_the_base_with_its_deltas_and_a_new_policy_drops_what_is_stored(tmp_path: Path) -> None:
    base = tiny_policy(tmp_path / "base")
    adapter = adapter_on(base, tmp_path / "adapter")
    engine = started(base)
    prompt = random_prompts(1, shared=60)[0]
    before = engine.complete("before", prompt, sampling()).result(timeout=60)
    engine.load_policy(adapter)
    after = engine.complete("after", prompt, sampling()).result(timeout=60)
    assert after.cached_tokens == 0
    assert after.token_ids != before.token_ids
    expected = plain_logprobs(adapted(base, adapter), prompt + after.token_ids)[len(prompt) - 1 :]
    torch.testing.assert_close(torch.tensor(after.logprobs, dtype=torch.float64), expected, atol=5e-5, rtol=0)
    compare(engine, prompt, plain_logprobs(adapted(base, adapter), prompt).tolist(), 1e-3)
    with pytest.raises(EngineError, match="does not run the policy"):
        compare(engine, prompt, plain_logprobs(plain_model(base), prompt).tolist(), 1e-3)
    engine.close()


def adapter_on(base: PolicySnapshot, folder: Path, seed: int = 1) -> PolicySnapshot:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    model = get_peft_model(
        plain_model(base), LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    )
    model.save_pretrained(str(folder))
    return PolicySnapshot(str(folder), "adapter", base.path)


def adapted(base: PolicySnapshot, adapter: PolicySnapshot) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(plain_model(base), adapter.path).eval()


def test_a_new_policy_frees_the_keys_and_values_of_the_one_before_at_once(tmp_path: Path) -> None:
    """A run of many iterations in one process would else hold them until Python looks for rings."""
    policy = tiny_policy(tmp_path)
    engine = started(policy)
    gc.disable()
    try:
        held = []
        for number in range(2):
            engine.complete("turn=0", random_prompts(1, shared=50)[0], sampling(1.0)).result(timeout=60)
            held += [weakref.ref(segment.store_L2HTD) for segment in engine.batch.tree._all()]
            engine.load_policy(replace(policy, digest=f"again {number}"))
        assert held
        assert all(one() is None for one in held)
    finally:
        gc.enable()
        engine.close()
