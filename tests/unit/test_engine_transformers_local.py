"""The embedded engine against transformers by itself: greedy replies, log-probabilities, seeds, reuse, eviction,
failure."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import Completion, PolicySnapshot, Sampling
from r3l.engines.embedded import engine as module
from r3l.engines.embedded.engine import TransformersLocal
from r3l.errors import EngineError, Interrupted
from tests.unit.engine_policies import STOP, plain_logprobs, plain_model, plain_reply, tiny_policy


def started(snapshot: PolicySnapshot, context_tokens: int = 512, **settings: Any) -> TransformersLocal:
    engine = make_engine(
        TransformersLocalSettings(device="cpu", **settings), PolicySettings(context_tokens=context_tokens)
    )
    engine.load_policy(snapshot)
    assert isinstance(engine, TransformersLocal)
    return engine


def random_prompts(count: int, shared: int = 0, seed: int = 0) -> list[list[int]]:
    chance = random.Random(seed)
    opening = [chance.randrange(STOP) for _ in range(shared)]
    return [opening + [chance.randrange(STOP) for _ in range(chance.randrange(1, 60))] for _ in range(count)]


def sampling(temperature: float = 0.0, max_tokens: int = 12, seed: int = 0) -> Sampling:
    return Sampling(temperature, max_tokens, seed, (STOP,))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_greedy_replies_and_logprobs_are_those_of_generate_under_mixed_arrival(tmp_path: Path, family: str) -> None:
    snapshot = tiny_policy(tmp_path, family)
    model = plain_model(snapshot)
    prompts = random_prompts(12, shared=40) + random_prompts(6, seed=1)
    engine = started(snapshot, max_batch=5)
    replies: dict[int, Completion] = {}

    def caller(numbers: list[int]) -> None:
        for number in numbers:
            replies[number] = engine.complete(
                f"turn={number}", prompts[number], sampling(max_tokens=3 + number)
            ).result(timeout=60)

    threads = [threading.Thread(target=caller, args=(list(range(start, 18, 6)),)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.close()
    for number, prompt in enumerate(prompts):
        reply = replies[number]
        assert reply.token_ids == plain_reply(model, prompt, 3 + number)
        expected = plain_logprobs(model, prompt + reply.token_ids)[len(prompt) - 1 :]
        torch.testing.assert_close(torch.tensor(reply.logprobs, dtype=torch.float64), expected, atol=2e-5, rtol=0)
        assert reply.finish_reason == ("stop" if reply.token_ids[-1] == STOP else "length")


def test_score_equals_a_plain_forward(tmp_path: Path) -> None:
    snapshot = tiny_policy(tmp_path, "qwen3")
    engine = started(snapshot)
    ids = random_prompts(1, shared=200)[0]
    engine.complete("before", ids, sampling()).result(timeout=60)
    scored = torch.tensor(engine.score(ids), dtype=torch.float64)
    engine.close()
    torch.testing.assert_close(scored, plain_logprobs(plain_model(snapshot), ids), atol=2e-5, rtol=0)


def test_context_limit_is_a_finish_reason_and_nothing_is_cut(tmp_path: Path) -> None:
    snapshot = tiny_policy(tmp_path)
    prompt = random_prompts(1, shared=60)[0][:60]
    engine = started(snapshot, context_tokens=65)
    assert engine.context_limit == 65
    reply = engine.complete("long", prompt, sampling(max_tokens=50)).result(timeout=60)
    whole = plain_reply(plain_model(snapshot), prompt, 50)
    assert STOP not in whole[:5]
    assert reply.token_ids == whole[:5]
    assert reply.finish_reason == "context"
    assert engine.complete("over", prompt * 2, sampling()).result(timeout=60) == Completion([], [], "context")
    engine.close()


def test_no_policy_and_a_closed_engine_are_errors(tmp_path: Path) -> None:
    engine = make_engine(TransformersLocalSettings(device="cpu"), PolicySettings())
    with pytest.raises(EngineError, match="load_policy"):
        engine.complete("early", [1], sampling()).result(timeout=60)
    with pytest.raises(EngineError, match="can't be loaded"):
        engine.load_policy(PolicySnapshot(str(tmp_path / "nothing"), "none"))
    engine.close()
    with pytest.raises(Interrupted, match="closed"):
        engine.complete("late", [1], sampling()).result(timeout=60)


def test_an_engine_that_closes_interrupts_the_calls_in_flight(tmp_path: Path) -> None:
    engine = started(tiny_policy(tmp_path))
    calls = [engine.complete(f"{k}", [5, 6, 7], sampling(max_tokens=100_000)) for k in range(3)]
    engine.close()
    for call in calls:
        with pytest.raises(Interrupted, match="closed before"):
            call.result(timeout=10)


def test_nobody_waits_for_a_step_that_outlasts_the_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    engine = started(tiny_policy(tmp_path), max_batch=1)
    assert engine.batch is not None
    step, under_way, going_on = engine.batch.step, threading.Event(), threading.Event()

    def long() -> None:
        under_way.set()
        assert going_on.wait(60)
        step()

    engine.batch.step = long  # type: ignore[method-assign]
    calls = [engine.complete(f"{k}", [5, 6, 7], sampling(max_tokens=1)) for k in range(2)]
    assert under_way.wait(60)
    engine.close()
    for call in calls:
        with pytest.raises(Interrupted, match="closed before"):
            call.result(timeout=0)
    going_on.set()
    engine._thread.join(60)
    assert not engine._thread.is_alive()


def test_a_failing_step_fails_its_requests_and_not_the_engine(tmp_path: Path) -> None:
    engine = started(tiny_policy(tmp_path))
    assert engine.batch is not None
    engine.batch._forward = lambda *given: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    broken = engine.complete("broken", [1, 2], sampling())
    with pytest.raises(EngineError, match="step failed: ZeroDivisionError"):
        broken.result(timeout=60)
    assert engine.complete("after", [1, 2, 3], sampling()).result(timeout=60).token_ids
    engine.close()


def test_calls_that_are_given_up_or_cut_off_by_closing_harm_no_other(tmp_path: Path) -> None:
    engine = started(tiny_policy(tmp_path), max_batch=1)
    calls = [engine.complete(f"{k}", [1, 2, k], sampling(1.0, max_tokens=30)) for k in range(8)]
    given_up = [call.cancel() for call in calls[4:]]
    assert any(given_up)
    for call in calls[:4]:
        assert call.result(timeout=60).token_ids
    assert engine.complete("after", [1, 2, 3], sampling()).result(timeout=60).token_ids
    last = [engine.complete(f"last={k}", [3, 2, k], sampling(1.0, max_tokens=400)) for k in range(30)]
    engine.close()
    ended = [call.exception(timeout=60) for call in last]
    assert all(error is None or isinstance(error, Interrupted) for error in ended)
    assert any(ended)


def test_a_torn_policy_file_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    engine = started(tiny_policy(tmp_path / "whole"))
    torn = tiny_policy(tmp_path / "torn")
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(EngineError, match=r"(?i)safetensor|header"):
        engine.load_policy(torn)
    engine.load_policy(tiny_policy(tmp_path / "again", seed=1))
    assert engine.complete("after", [1, 2, 3], sampling()).result(timeout=60).token_ids
    engine.close()
