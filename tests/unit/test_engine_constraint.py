"""Replies by JSON schema: always valid, the pivot within its bounds, beside replies that are not constrained."""

import json
from pathlib import Path

import pytest

from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import Engine, Sampling
from r3l.errors import EngineError
from r3l.exploration.report import TEXT_KEYS, parse_report, report_schema
from tests.unit.chat_tokenizers import family_tokenizer
from tests.unit.engine_policies import tiny_policy

pytest.importorskip("llguidance")
PIVOT = {"type": "integer", "minimum": 0, "maximum": 2}
SCHEMA = {
    "type": "object",
    "properties": {"outcome": {"enum": ["success", "failure"]}, "pivot": PIVOT},
    "required": ["outcome", "pivot"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder: Path = tmp_path_factory.mktemp("policy")
    tokenizer = family_tokenizer("smollm2")
    snapshot = tiny_policy(folder, vocab_size=len(tokenizer) + 5)  # a padded vocabulary, as many policies have
    tokenizer.save_pretrained(folder)
    engine = make_engine(TransformersLocalSettings(device="cpu"), PolicySettings())
    engine.load_policy(snapshot)
    return engine


def test_every_constrained_reply_is_valid_json_and_others_are_left_alone(engine: Engine) -> None:
    tokenizer = family_tokenizer("smollm2")
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    prompt = tokenizer.encode("Report:", add_special_tokens=False)
    free = Sampling(1.0, 20, 1, (stop,))
    alone = engine.complete("alone", prompt, free).result(timeout=60)
    held = [engine.complete(f"held={seed}", prompt, Sampling(1.0, 200, seed, (stop,), SCHEMA)) for seed in range(8)]
    unconstrained = engine.complete("beside", prompt, free).result(timeout=60)
    pivots = set()
    for call in held:
        reply = call.result(timeout=60)
        assert reply.finish_reason == "stop"
        text = tokenizer.decode(reply.token_ids[:-1])
        report = json.loads(text)
        assert text == json.dumps(report)
        assert report["outcome"] in ("success", "failure")
        assert report["pivot"] in (0, 1, 2)
        pivots.add(report["pivot"])
    assert len(pivots) > 1
    assert unconstrained.token_ids == alone.token_ids


def test_a_report_that_is_held_to_its_schema_parses_and_keeps_short(engine: Engine) -> None:
    """A random policy, which never stops by itself: each text ends where the schema says."""
    tokenizer = family_tokenizer("smollm2")
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    held = [
        engine.complete(f"report={seed}", [1, 2], Sampling(1.0, 900, seed, (stop,), report_schema(3, 110)))
        for seed in range(2)
    ]
    for call in held:
        reply = call.result(timeout=60)
        report = parse_report(tokenizer.decode(reply.token_ids[:-1]), 3)
        assert reply.finish_reason == "stop"
        assert all(len(json.loads(report.text)[key]) <= 20 for key in TEXT_KEYS)
    assert report_schema(3, 4096)["properties"][TEXT_KEYS[0]]["maxLength"] == 2677


def test_a_schema_that_can_not_be_compiled_fails_its_own_request(engine: Engine) -> None:
    with pytest.raises(EngineError, match="JSON schema"):
        engine.complete("bad", [1, 2], Sampling(1.0, 20, 0, (2,), {"type": "nonsense"})).result(timeout=60)
    assert engine.complete("good", [1, 2], Sampling(1.0, 5, 0, (2,))).result(timeout=60).token_ids
