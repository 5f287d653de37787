import math
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from r3l.audit.lines import Line
from r3l.audit.reader import Reader
from r3l.audit.tokens import decoder, token_page
from r3l.audit.web.app import make_app
from r3l.errors import StoreError
from r3l.store.stage import Store
from tests.support.audit_world import World, commit

LINE = Line("demo")
PLACE = "demo/policies/iteration=00000/policy/tokenizer.json"


@pytest.fixture
def world():
    """An iteration in which the first trained reply of each distilled row stands behind guidance: its log-probability
    is NaN."""
    made = World(0, tasks=6)
    for k, row in enumerate(made.rows):
        if "distilled" in row.source_id:
            first = next(place for place, weight in enumerate(row.weights) if weight)
            logprobs = [math.nan if place == first else value for place, value in enumerate(row.logprobs)]
            made.rows[k] = replace(row, logprobs=logprobs)
    return made


@pytest.fixture
def store(tmp_path, world):
    made = Store.open(str(tmp_path / "store"))
    commit(made, "demo", 0, world.tables())
    return made


def vocabulary() -> bytes:
    return Tokenizer(WordLevel({f"<w{k}>" if k == 2 else f"w{k}": k for k in range(3001)}, "w0")).to_str().encode()


def test_tokens_read_as_text_by_the_policys_tokenizer(store, world):
    store.files.put(PLACE, vocabulary())
    reader = Reader(store)
    assert [decoder(reader, LINE)(id_) for id_ in (2, 57)] == ["<w2>", "w57"]
    source = world.rows[0].source_id
    with TestClient(make_app(store), base_url="http://127.0.0.1:4300") as client:
        page = client.get("/run/demo/tokens", params={"source": source, "iteration": 0}).text
        whole = client.get("/run/demo/tokens", params={"source": source, "iteration": 0, "every": 1}).text
    assert "&lt;w2&gt;</span>" in page
    assert page.count('class="token ') == world.rows[0].trained_tokens
    assert whole.count('class="token ') == len(world.rows[0].token_ids)
    assert 'class="token off"' in whole
    assert "/run/demo?at=0#step" in page
    reader.close()


@pytest.mark.parametrize("content", [None, b"{", b'{"model": 3}'])
def test_without_a_tokenizer_tokens_are_shown_by_id_with_the_reason(store, world, content):
    if content is not None:
        store.files.put(PLACE, content)
    reader = Reader(store)
    with pytest.raises(StoreError, match=r"tokenizer\.json"):
        decoder(reader, LINE)
    found = token_page(reader, LINE, 0, world.rows[0].source_id, 0, False)
    assert (found.texts, "tokenizer.json" in found.untold) == ({}, True)
    reader.close()


def test_a_log_probability_behind_guidance_is_taken_from_the_turn(store, world):
    reader = Reader(store)
    row = next(row for row in world.rows if "distilled" in row.source_id)
    first = next(place for place, weight in enumerate(row.weights) if weight)
    turns = next(turns for one, turns in world.distilled if one.trajectory_id == row.source_id)
    pivot = next(one.pivot_turn for one, _ in world.distilled if one.trajectory_id == row.source_id)
    found = token_page(reader, LINE, 0, row.source_id, 0, False)
    token = next(token for token in found.tokens if token["place"] == first)
    assert math.isnan(token["logprob"])
    assert found.logprob(token) == pytest.approx(turns[pivot].response_logprobs[0])
    assert found.runs[0][0]["place"] == first
    reader.close()


def test_the_trainers_scores_stand_beside_the_samplers(tmp_path, world):
    """Of one row the update stored scores, of the others none: their page has no such columns."""
    tables, row = world.tables(), world.rows[0]
    trained = [logprob for logprob, weight in zip(row.logprobs, row.weights, strict=True) if weight]
    numbers = {"logprobs": [one - 0.25 for one in trained], "entropies": [1.5] * len(trained)}
    known = {"row_id": row.row_id, "group_id": row.group_id, "iteration": 0, "cut_tokens": None}
    tables["updates"]["training_scores"] = [known | numbers | {"teacher_logprobs": [-9.0] * len(trained)}]
    store = Store.open(str(tmp_path / "scored"))
    commit(store, "demo", 0, tables)
    with TestClient(make_app(store), base_url="http://127.0.0.1:4300") as client:
        pages = [
            client.get("/run/demo/tokens", params={"source": one.source_id, "iteration": 0}).text
            for one in world.rows[:2]
        ]
    assert pages[0].count('<td class="n">\u22120.2500</td>') == len(trained)
    assert "by the teacher" in pages[0]
    assert "by the trainer" not in pages[1]
    reader = Reader(store)
    found = token_page(reader, LINE, 0, row.source_id, 0, True)
    assert [found.difference(token) for token in found.tokens if token["weight"]] == pytest.approx(
        [-0.25] * len(trained)
    )
    assert {token["entropy"] for token in found.tokens if not token["weight"]} == {None}
    reader.close()
