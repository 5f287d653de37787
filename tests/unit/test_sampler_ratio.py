"""The ratio of trainer to engine: its weights by hand, in the rows, in the update, in the tables, and as an alarm."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from r3l.config import compose
from r3l.config.engines import TransformersLocalSettings, VllmServerSettings
from r3l.config.methods.rivals import GRPOSettings
from r3l.config.section import settings_of
from r3l.losses import sampler_weights
from r3l.pipeline.stages.updates import _scores
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.stage import Store
from r3l.training.scores import ENTROPY_BITS, LOGPROB_BITS, rounded
from tests.support.rehearsal import rehearse, tiny_policy, update
from tests.support.store_iteration import commit_iteration, commit_stage

ENGINE = torch.tensor([-1.0, -1.0, -1.0, math.nan, -1.0], dtype=torch.float64)
TRAINER = ENGINE.nan_to_num() + torch.tensor([0.1, 1.0, -1.0, 5.0, 3.0], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64)


@pytest.mark.parametrize(("rule", "weights", "cut"), [
    # ratios e^.1 = 1.105, e = 2.718, 1/e = .368; not told; the last token has no weight
    ("truncate", [math.exp(0.1), 2.0, math.exp(-1), 1.0, 1.0], [False, True, False, False, False]),
    ("mask", [math.exp(0.1), 0.0, 0.0, 1.0, 1.0], [False, True, True, False, False]),
    # the product is e^(.1 + 1 - 1) for every token whose ratio is told
    ("sequence_mask", [math.exp(0.1)] * 3 + [1.0, 1.0], [False] * 5),
])  # fmt: skip
def test_weights_agree_with_a_calculation_by_hand(rule, weights, cut):
    found, changed = sampler_weights(TRAINER, ENGINE, WEIGHTS, rule=rule, low=0.5, high=2.0)
    assert found.tolist() == pytest.approx(weights)
    assert changed.tolist() == cut


def test_a_row_whose_product_is_above_the_bound_is_masked_whole():
    """As TRL has it: ratio = exp(sum of differences), 0 where it is above the cap."""
    found, changed = sampler_weights(TRAINER, ENGINE, WEIGHTS, rule="sequence_mask", low=0.5, high=1.1)
    assert found.tolist() == [0, 0, 0, 1, 1]
    assert changed.tolist() == [True, True, True, False, False]


def test_the_default_is_by_engine_and_leaves_what_was_stored_before_as_it_was():
    config = compose(method="grpo")
    assert (TransformersLocalSettings.SAMPLER_RATIO, VllmServerSettings.SAMPLER_RATIO) == ("none", "truncate")
    assert not any("sampler" in name for name in settings_of(config.method, "training_rows"))
    assert "scores" not in settings_of(config.training, "updates")
    asked = compose(method="grpo", assignments=["method.sampler_ratio=mask"])
    assert settings_of(asked.method, "training_rows")["sampler_ratio"] == "mask"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return tiny_policy(tmp_path_factory.mktemp("policy") / "p", 0)


def stepped(folder, policy, rows, groups, **training):
    spec = {"policy": {"path": policy, "digest": "policy-0"}, "reference": policy}
    result = update(folder, rows, groups, training={"learning_rate": 1e-2, "device": "cpu", **training}, **spec)
    return result, [folder / "out" / name for name in result["scores"]]


def less_likely(row):
    """The row with every other trained token sampled at -6: its ratio is above 1, those of the others are below."""
    numbers = enumerate(zip(row.logprobs, row.weights, strict=True))
    return replace(row, logprobs=[-6.0 if weight and place % 2 else value for place, (value, weight) in numbers])


@pytest.mark.parametrize("steps", [1, 2])
def test_the_update_weighs_each_token_and_stores_what_it_found(steps, policy, tmp_path):
    """The corridor's policy is scripted and its log-probabilities are not the tiny model's: nearly every ratio is far
    from 1. A plain policy gradient becomes the sum over tokens of min(ratio, high) times what it was."""
    settings = compose(method="rloo", assignments=["method.sampler_ratio=truncate", "method.sampler_high=1.5"]).method
    tables, groups = rehearse(settings)
    rows = [less_likely(row) for row in tables["training_rows"]["training_rows"]]
    assert {json.loads(row.objective_settings)["sampler"]["high"] for row in rows} == {1.5}
    result, (file,) = stepped(tmp_path / "a", policy, rows, groups, epochs=steps)
    assert result["scoring_passes"] == 1  # the policy itself, before the first step
    scores = {one["row_id"]: one for one in pq.read_table(file).to_pylist()}
    assert set(scores) == {row.row_id for row in rows}
    loss = 0.0
    for row in rows:
        trained = np.flatnonzero(row.weights)
        trainer = np.array(scores[row.row_id]["logprobs"])
        ratios = np.exp(trainer - np.array(row.logprobs)[trained])
        loss -= (np.array(row.weights)[trained] * np.minimum(ratios, 1.5) * row.advantage * trainer).sum() / groups
        assert scores[row.row_id]["cut_tokens"] == (ratios > 1.5).sum() > 0
    assert result["steps"][0]["loss"] == pytest.approx(loss, rel=1e-4)
    plain, _ = rehearse(compose(method="rloo").method)
    without, files = stepped(tmp_path / "b", policy, plain["training_rows"]["training_rows"], groups)
    assert files == []
    assert without["loss"] != pytest.approx(loss, rel=1e-2)


@pytest.mark.parametrize(("method", "overlap", "by"), [
    ("rloo", False, "older"),
    # the loss has no ratio of its own: the weight is that of the trained policy, and corrects for the update between
    ("rloo", True, "trained"),
    # the loss has its ratio to the older policy: a weight by the same ratio would count it twice
    ("grpo", False, "older"),
    ("grpo", True, "older"),
])  # fmt: skip
def test_with_overlap_the_policy_that_sampled_is_corrected_for_once(method, overlap, by, policy, tmp_path):
    settings = compose(method=method, assignments=["method.sampler_ratio=truncate", "method.kl_coefficient=0"]).method
    tables, groups = rehearse(settings)
    on_policy = tables["training_rows"]["training_rows"]
    stale = [replace(row, behaviour_policy="older") for row in on_policy]
    paths = {"trained": policy, "older": tiny_policy(tmp_path / "p", 1)}

    def scores(name, rows, path, **job):
        spec = {"policy": {"path": path, "digest": "policy-0"}, "reference": policy, **job}
        result = update(tmp_path / name, rows, groups, **spec)
        (file,) = result["scores"]
        return {one["row_id"]: one["logprobs"] for one in pq.read_table(tmp_path / name / "out" / file).to_pylist()}

    training = {"learning_rate": 1e-2, "device": "cpu", "overlap": overlap}
    others = {"older": paths["older"]} if by == "older" else {}  # no other policy is even read
    found = scores("stale", stale, policy, policies=others, training=training)
    expected = scores("by", on_policy, paths[by])
    assert found == {name: pytest.approx(values, abs=1e-4) for name, values in expected.items()}


def test_what_a_ratio_is_to_is_the_policy_before_the_first_step(policy, tmp_path):
    """Rows of the second minibatch are read after a long step; their scores are those of one step over the batch."""
    tables, groups = rehearse(compose(method="paper", assignments=["method.sampler_ratio=truncate"]).method)
    rows = tables["training_rows"]["training_rows"]
    _, (one,) = stepped(tmp_path / "one", policy, rows, groups)
    result, (two,) = stepped(tmp_path / "two", policy, rows, groups, minibatches=2, learning_rate=0.5)
    assert len(result["steps"]) == 2
    scores = [{row["row_id"]: row["logprobs"] for row in pq.read_table(file).to_pylist()} for file in (one, two)]
    assert {name: pytest.approx(values, abs=1e-4) for name, values in scores[0].items()} == scores[1]


def test_scores_of_every_row_need_no_further_pass(policy, tmp_path):
    tables, groups = rehearse(compose(method="paper").method)
    rows = tables["training_rows"]["training_rows"]
    result, (file,) = stepped(tmp_path / "a", policy, rows, groups, scores=True)
    assert result["scoring_passes"] == 0
    scores = {one["row_id"]: one for one in pq.read_table(file).to_pylist()}
    assert {name: len(one["logprobs"]) for name, one in scores.items()} == {
        row.row_id: row.trained_tokens for row in rows
    }
    assert all(0 < value <= math.log(128) + 1e-2 for one in scores.values() for value in one["entropies"])
    assert {one["cut_tokens"] for one in scores.values()} == {None}


def test_numbers_are_rounded_to_the_bits_that_are_kept():
    values = np.array([-0.1, -3.3333333, -1e-7, 0.0, 2.0])
    for bits in (LOGPROB_BITS, ENTROPY_BITS):
        assert rounded(values, bits) == pytest.approx(values.tolist(), rel=2.0 ** -(bits + 1), abs=0)
    assert rounded(values, 9)[1] != pytest.approx(-3.3333333, rel=1e-5)


def test_the_tables_have_the_ratios_and_an_alarm_rings_where_they_part(tmp_path):
    """Of the rows by hand every trained token has log-probability -.5: a trainer that says .3 less has ratio e^-.3."""
    store = Store.open(str(tmp_path))
    refs = {i: commit_iteration(store, iteration=i) for i in range(2)}
    for i, less in ((0, 0.3), (1, 1.0)):
        rows = store.read(refs[i]["training_rows"], "training_rows").to_pylist()
        updates = store.read(refs[i]["updates"], "updates").to_pylist()
        scores = [
            {"row_id": row["row_id"], "group_id": row["group_id"], "iteration": i, "teacher_logprobs": None}
            | {"logprobs": [-0.5 - less] * row["trained_tokens"], "entropies": [1.0] * row["trained_tokens"]}
            | {"cut_tokens": row["trained_tokens"] if i else 0}
            for row in rows
        ]
        commit_stage(
            store, "updates", {"updates": updates, "training_scores": scores}, [refs[i]["training_rows"]], "demo", i
        )
    connection = connect(store)
    sql = "SELECT sampler_ratio_mean, sampler_ratio_p99, sampler_cut FROM iterations ORDER BY iteration"
    found = connection.execute(sql).fetchall()
    assert found[0] == pytest.approx((math.exp(-0.3), math.exp(-0.3), 0.0), rel=1e-5)
    assert found[1] == pytest.approx((1 / math.e, 1 / math.e, 1.0), rel=1e-5)
    alarms = connection.execute("SELECT iteration, advice FROM alarms WHERE alarm = 'sampler ratio'").fetchall()
    assert [iteration for iteration, _ in alarms] == [1]
    assert "2.72 times as likely" in alarms[0][1]
    assert [finding.place for finding in check_run(store, "demo") if "scores of" in finding.what] == []
    connection.close()


def test_scores_that_are_not_their_rows_are_found(tmp_path):
    store = Store.open(str(tmp_path))
    refs = commit_iteration(store)
    rows = store.read(refs["training_rows"], "training_rows").to_pylist()
    faults = [
        {"logprobs": [-0.5]},
        {"teacher_logprobs": [-1.0] * 9},
        {"cut_tokens": 99},
        {"row_id": "iteration=0/none"},
        {"logprobs": None},
    ]
    scores = []
    for row, fault in zip(rows, faults, strict=True):
        numbers = [-0.5] * row["trained_tokens"]
        good = {"row_id": row["row_id"], "group_id": row["group_id"], "iteration": 0, "teacher_logprobs": None}
        above = {"logprobs": [0.5, *numbers[1:]]} if fault == {"logprobs": None} else fault
        scores.append(good | {"logprobs": numbers, "entropies": numbers, "cut_tokens": None} | above)
    tables = {"updates": store.read(refs["updates"], "updates"), "training_scores": scores}
    commit_stage(store, "updates", tables, [refs["training_rows"]], "demo", 0)
    found = [one for one in check_run(store, "demo") if "scores of" in one.what]
    assert sorted(one.place for one in found) == sorted(f"demo {one['row_id']}" for one in scores[: len(faults)])
    assert {one.check for one in found} == {"6_weights"}


def test_files_of_all_ranks_become_one_table(tmp_path, policy):
    tables, groups = rehearse(GRPOSettings(sampler_ratio="mask"))
    _, (file,) = stepped(tmp_path / "a", policy, tables["training_rows"]["training_rows"], groups)
    store = Store.open(str(tmp_path / "store"))
    both = _scores(store, [str(file), str(file)])
    assert both.num_rows == 2 * pq.read_table(file).num_rows
    assert _scores(store, []) == []
