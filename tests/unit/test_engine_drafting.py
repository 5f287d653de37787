"""Guesses: what is guessed, when it is held back, and that right and wrong guesses leave every reply as it was."""

from pathlib import Path

import pytest

from r3l.engines.base import Sampling
from r3l.engines.embedded import drafting
from r3l.engines.embedded.drafting import LENGTH, OFTEN, Drafts
from tests.unit.engine_policies import STOP, plain_model, plain_reply, tiny_policy
from tests.unit.test_engine_transformers_local import random_prompts, sampling, started


def test_the_last_continuation_is_guessed() -> None:
    drafts = Drafts()
    drafts.learn([1, 2, 3, 4], [5, 6, 7], 0, 0)
    assert drafts.guess([9, 1, 2, 3, 4], 10) == [5, 6, 7]
    assert drafts.guess([1, 2, 3, 4], 2) == [5, 6]
    assert drafts.guess([2, 3, 4], 10) == []
    drafts.learn([1, 2, 3, 4], [8], 0, 0)
    assert drafts.guess([1, 2, 3, 4], 10) == [8]
    drafts.learn([1, 1, 1, 1], [1], 0, 0)
    assert drafts.guess([1, 1, 1, 1], 10) == [1] * LENGTH


def test_after_many_wrong_guesses_only_what_was_seen_often_is_guessed() -> None:
    drafts = Drafts()
    drafts.learn([1, 2, 3, 4], [5], 0, 0)
    for _ in range(100):
        drafts.learn([9, 9, 9, 9], [8], 4, 0)
    assert drafts.guess([1, 2, 3, 4], 10) == []
    for _ in range(OFTEN - 1):
        drafts.learn([1, 2, 3, 4], [5], 0, 0)
    assert drafts.guess([1, 2, 3, 4], 10) == [5]


@pytest.mark.parametrize("right", [True, False])
def test_guesses_change_no_reply(tmp_path: Path, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses from a played episode (right ones), and made-up ones (wrong ones), against none at all."""
    snapshot = tiny_policy(tmp_path)
    prompts = random_prompts(6, shared=20)
    settings = [Sampling(temperature, 24, 5, (STOP,)) for temperature in (0.0, 1.0)]
    monkeypatch.setattr(drafting, "LENGTH", 0)
    engine = started(snapshot)
    plain = [engine.complete("plain", prompt, how).result(timeout=60) for prompt in prompts for how in settings]
    assert engine.batch is not None
    assert engine.batch.drafts.guessed == 0
    engine.close()
    monkeypatch.undo()
    if not right:
        monkeypatch.setattr(
            Drafts, "guess", lambda self, before, limit: [(sum(before) + k) % STOP for k in range(min(3, limit))]
        )
    engine = started(snapshot)
    for _ in range(2):
        calls = [engine.complete("guessed", prompt, how) for prompt in prompts for how in settings]
        assert [call.result(timeout=60).token_ids for call in calls] == [reply.token_ids for reply in plain]
    assert engine.batch is not None
    drafts = engine.batch.drafts
    assert drafts.right > 0.3 * drafts.guessed > 0 if right else drafts.guessed > 20 * drafts.right
    engine.close()


def test_guesses_stop_at_the_limits(tmp_path: Path) -> None:
    snapshot = tiny_policy(tmp_path)
    model = plain_model(snapshot)
    prompt = random_prompts(1, shared=40)[0][:60]
    engine = started(snapshot, context_tokens=80)
    for max_tokens in (40, 7, 3, 1):
        for _ in range(2):
            reply = engine.complete("again", prompt, sampling(max_tokens=max_tokens)).result(timeout=60)
            assert reply.token_ids == plain_reply(model, prompt, min(max_tokens, 80 - len(prompt)))
    engine.close()
