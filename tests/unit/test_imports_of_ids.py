"""Rollouts with token ids, of other packages, read as runs. The files in tests/golden/imports were written by the code
of verifiers 0.4 (an episode, as prime-rl appends it), of slime and of Trinity-RFT 0.6 itself; hostile ones are made
here."""

import json
import math
import os
import shutil
import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from r3l.credit.advantages import scaled_advantages
from r3l.errors import StoreError
from r3l.pipeline.imports import import_run
from r3l.store.genealogy import why
from tests.unit.test_imports import asked, store

__all__ = ["store"]

GOLDEN = Path(__file__).parents[1] / "golden" / "imports"
BUFFER = GOLDEN / "trinity" / "buffer.db"
POLICY = str(Path(__file__).parents[2] / "data" / "policies" / "household-easy-0")
SEQUENCES = """
SELECT flatten(list(context_ids || response_ids ORDER BY turn)),
       flatten(list(list_transform(context_ids, lambda one: 0) || list_transform(response_ids, lambda one: 1)
                    ORDER BY turn)),
       flatten(list(response_logprobs ORDER BY turn))
FROM turns GROUP BY iteration, trajectory_id ORDER BY iteration, trajectory_id
"""
ROWS = "SELECT token_ids, weights, advantage, advantages FROM training_rows ORDER BY iteration, row_id"


def float32(values: list[float]) -> list[float]:
    return np.asarray(values, dtype=np.float32).tolist()


def experiences() -> list[dict[str, np.ndarray]]:
    """The tensors of Trinity's buffer, read by its own form, in its order."""
    with sqlite3.connect(BUFFER) as connection:
        blobs = [
            one for (one,) in connection.execute("SELECT experience_bytes FROM experience_buffer_blob ORDER BY id")
        ]
    starts = [21 + struct.unpack_from("<Q", one, 5)[0] for one in blobs]
    return [load(one[start:]) for one, start in zip(blobs, starts, strict=True)]


def test_ids_masks_and_log_probabilities_of_trinity_are_those_of_its_tensors_and_its_advantages_those_of_its_rewards(
    store,
):
    assert import_run(store, "theirs", "trinity", BUFFER) == {"iterations": 2, "attempts": 12, "credited": 12}
    credit = asked(store, "SELECT reward, advantage FROM credit ORDER BY iteration, trajectory_id")
    told = zip(experiences(), asked(store, SEQUENCES), asked(store, ROWS), strict=True)
    for its, (ids, mask, logprobs), (row_ids, weights, advantage, advantages) in told:
        before = len(its["0:tokens"]) - len(its["0:action_mask"])
        assert row_ids == ids == its["0:tokens"].tolist()
        assert weights == mask == [0] * before + its["0:action_mask"].astype(int).tolist()
        assert logprobs == its["0:logprobs"][its["0:action_mask"]].tolist()
        assert advantages is None
        assert float32([advantage]) == [its["0:advantages"][0].item()]
    for group in np.asarray(credit).reshape(4, 3, 2):
        assert scaled_advantages(group[:, 0], "std") == pytest.approx(group[:, 1], abs=1e-6)
    assert "weight 1 x 3 tokens, w·A +1" in str(why(store, "theirs", "iteration=0/task=0/base=0"))
    assert "(no text is told)" in str(why(store, "theirs", "iteration=0/task=0/base=0"))


def test_the_lines_of_trinity_have_its_texts_and_no_ids(store):
    import_run(store, "theirs", "trinity", GOLDEN / "trinity" / "input.jsonl")
    turns = asked(
        store,
        "SELECT t.observation, t.response, t.context_ids FROM turns t JOIN base USING (run, iteration, trajectory_id) "
        "WHERE t.iteration = 0 AND task = 1 AND attempt = 0 ORDER BY turn",
    )
    assert turns == [("2 * 3?", "a tool 4", []), ("6", "six", [])]
    assert asked(store, "SELECT count(*) FROM training_rows") == [(0,)]


def test_ids_and_masks_of_slime_are_those_of_its_samples(store):
    counts = import_run(store, "theirs", "slime", GOLDEN / "slime", POLICY)
    assert counts == {"iterations": 1, "attempts": 5, "credited": 0}  # the file of an evaluation is none of them
    samples = torch.load(GOLDEN / "slime" / "6.pt", weights_only=True)["samples"]
    for one, (ids, mask, logprobs) in zip(samples[:4], asked(store, SEQUENCES), strict=True):  # the last was aborted
        assert ids == one["tokens"]
        assert mask == [0] * (len(ids) - one["response_length"]) + (one["loss_mask"] or [])
        own = zip(one["rollout_log_probs"] or [], one["loss_mask"] or [], strict=True)
        assert logprobs == float32([logprob for logprob, is_trained in own if is_trained])
    ends = asked(store, "SELECT status, reward FROM base ORDER BY trajectory_id")
    assert ends == [("completed", 1), ("context_limit", 0), ("completed", 0.5), ("completed", 1), ("engine_error", 0)]
    texts = asked(store, "SELECT response FROM turns WHERE trajectory_id = 'iteration=0/task=1/base=0' ORDER BY turn")
    assert all(text for (text,) in texts)  # which words are of which turn is told by the tokenizer alone


def test_each_path_of_a_trace_of_prime_rl_is_an_attempt_that_trains_a_shared_reply_once(store):
    assert import_run(store, "theirs", "prime-rl", GOLDEN / "prime-rl")["attempts"] == 9
    lines = [
        json.loads(line) for file in sorted(GOLDEN.rglob("traces.jsonl")) for line in file.read_text().splitlines()
    ]
    traces = [one["traces"][0] for one in lines]
    paths = [[[0, 1, 2, 3, 4], [0, 1, 2, 5, 6]][: len(one["nodes"]) // 3] for one in traces]
    flat = [(trace, path, path[3] == 5) for trace, its in zip(traces, paths, strict=True) for path in its]
    rows = asked(store, ROWS)
    for (trace, path, is_second), (ids, mask, logprobs), row in zip(flat, asked(store, SEQUENCES), rows, strict=True):
        nodes = [trace["nodes"][place] for place in path]
        assert row[0] == ids == [one for node in nodes for one in node["token_ids"]]
        trained = [
            0 if is_second and place == 2 else int(one)
            for place, node in zip(path, nodes, strict=True)
            for one in node["mask"]
        ]
        assert row[1] == mask == trained
        own = [
            one
            for place, node in zip(path, nodes, strict=True)
            for one in node["logprobs"]
            if not (is_second and place == 2)
        ]
        assert logprobs == float32(own)
        assert row[2] == trace["nodes"][2]["advantages"][0]
    rewards = asked(store, "SELECT reward, advantage, iteration, task FROM credit ORDER BY iteration, trajectory_id")
    assert [one[0] - 0.75 for one in rewards[:4]] == [one[1] for one in rewards[:4]]  # prime-rl's, without a deviation
    texts = asked(
        store,
        "SELECT observation, response FROM turns WHERE iteration = 0 AND trajectory_id LIKE '%=0/base=0' ORDER BY turn",
    )
    assert texts == [("system: be brief\n\nuser: 2+2?", "think 0"), ("go on", "four")]


def line_of_prime(**changed: object) -> dict:
    node = {
        "message": {"role": "assistant", "content": "x"},
        "sampled": True,
        "token_ids": [1],
        "mask": [True],
        "logprobs": [-1.0],
    }
    return {"traces": [{"rewards": {"a": {"score": 1.0}}, "nodes": [node | changed]}]}


@pytest.mark.parametrize(("line", "message"), [
    (line_of_prime(token_ids=[1, 2]), "mask has 1 values for 2 token ids"),
    (line_of_prime(token_ids=[2**31]), "2147483648 is no token id"),
    (line_of_prime(token_ids=[True]), "True is no token id"),
    (line_of_prime(mask=[7]), "the mask holds 7, expected 0 or 1"),
    (line_of_prime(logprobs=[-1.0, -2.0]), "2 values for the 1 sampled tokens"),
    (line_of_prime(advantages=[float("inf")]), "an advantage is inf, expected a finite number"),
    (line_of_prime(parent=0), "node 0 has the parent 0, expected a node before it"),
    (line_of_prime(message={"role": "assistant", "content": "\ud800"}), "not what prime-rl writes"),
    (line_of_prime(message="x"), "not what prime-rl writes"),
    ({"traces": [{"rewards": {"a": {"score": float("nan")}}, "nodes": []}]}, "score is nan"),
    ({"traces": [{"nodes": []}]}, "not what prime-rl writes .KeyError.'rewards'"),
    ({"traces": None}, "not what prime-rl writes"),
    ([], "expected an object, got list"),
])  # fmt: skip
def test_an_odd_line_of_prime_rl_is_named(store, tmp_path, line, message):
    file = tmp_path / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(line) + "\n")
    with pytest.raises(StoreError, match=f"traces.jsonl, line 1: .*{message}"):
        import_run(store, "theirs", "prime-rl", tmp_path)
    assert store.runs() == []


@pytest.mark.parametrize(("changed", "message"), [
    ({"loss_mask": [1]}, "mask has 3 values for 4 token ids"),
    ({"rollout_log_probs": [0.5] * 9}, "logprobs has 11 values"),
    ({"response_length": 9}, "response_length is 9, expected 0 to 4"),
    ({"reward": math.nan}, "score is nan"),
    ({"reward": {"accuracy": 1.0, "format": 1.0}}, "of the rewards accuracy, format .*save it again"),
    ({"tokens": None}, "not what slime writes"),
])  # fmt: skip
def test_an_odd_sample_of_slime_is_named(store, tmp_path, changed, message):
    plain = {
        "prompt": "a", "tokens": [1, 2, 3, 4], "response": "b", "response_length": 2, "status": "completed",
        "reward": 1.0,
    }  # fmt: skip
    torch.save({"rollout_id": 0, "samples": [plain | changed]}, tmp_path / "0.pt")
    with pytest.raises(StoreError, match=f"0.pt, sample 0: .*{message}"):
        import_run(store, "theirs", "slime", tmp_path)


def experience(tensors: bytes, before: int = 0, size: int = 10**6) -> bytes:
    """What Trinity 0.6 stores, without the pickle."""
    return b"TRXP\x01" + struct.pack("<QQ", before, size) + tensors


def sequence(ids: int, mask: int) -> bytes:
    return experience(save({"0:tokens": np.ones(ids), "0:action_mask": np.ones(mask)}))


class Rude:
    def __reduce__(self):
        return os.mkdir, (str(Path(os.environ["RUDE"]) / "ran"),)


def test_nothing_in_a_file_of_slime_is_run(store, tmp_path, monkeypatch):
    monkeypatch.setenv("RUDE", str(tmp_path))
    torch.save({"rollout_id": 0, "samples": [Rude()]}, tmp_path / "0.pt")
    with pytest.raises(StoreError, match=r"0.pt: holds more than plain values.*save it again"):
        import_run(store, "theirs", "slime", tmp_path)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "0.pt").write_bytes(b"no file of torch")
    with pytest.raises(StoreError, match=r"0\.pt: "):
        import_run(store, "theirs", "slime", tmp_path)


@pytest.mark.parametrize(("content", "message"), [
    (b"\x80\x04K\x01.", "this experience is a pickle, which is never opened"),
    (experience(b"none", size=4), "its tensors .version 1. can't be read"),
    (experience(b"none", before=2**63), "its tensors"),
    (sequence(1, 2), "2 values for 1 token"),
    (sequence(2, 2), "1.0 is no token id"),
    (None, "not what trinity writes"),
])  # fmt: skip
def test_an_odd_experience_of_trinity_is_named_and_no_pickle_opened(store, tmp_path, content, message):
    shutil.copy(BUFFER, tmp_path / "buffer.db")
    with sqlite3.connect(tmp_path / "buffer.db") as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM experience_buffer_blob")
        connection.execute("DROP TABLE experience_buffer_blob")
        connection.execute("ALTER TABLE t RENAME TO experience_buffer_blob")
        connection.execute("UPDATE experience_buffer_blob SET experience_bytes = ? WHERE id = 3", [content])
    with pytest.raises(StoreError, match=f"buffer.db, experience_buffer 3: .*{message}"):
        import_run(store, "theirs", "trinity", tmp_path)


def test_a_database_that_is_none_is_named(store, tmp_path):
    (tmp_path / "buffer.db").write_bytes(b"none" * 2000)
    with pytest.raises(StoreError, match=r"buffer.db: no buffer of Trinity-RFT 0.6 or later .*import the JSON lines"):
        import_run(store, "theirs", "trinity", tmp_path)
