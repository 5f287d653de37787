"""The off-policy sequence mask: by hand, in the rows of methods, and in the update job."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch

from r3l.config.methods import R3LSettings
from r3l.config.methods.rivals import GRPOSettings
from r3l.losses import off_policy
from r3l.training.gradients import Measures, RowScores, measure, row_gradient
from tests.support.exploration_group import base, distilled, played, retry
from tests.support.rehearsal import tiny_policy, update
from tests.support.update_world import record, rows_of
from tests.unit.test_methods import rows_of as method_rows
from tests.unit.test_methods import sampled


def test_a_bad_row_is_masked_beyond_the_threshold_and_a_good_one_never():
    logp, weights = torch.tensor([-1.0, -3.0, -9.0]), torch.tensor([0.5, 0.5, 0.0])
    # mean over the trained tokens -2; sampled at -1.4: 0.6 nats
    assert off_policy(logp, weights, -1.0, sampled_logprob=-1.4, delta=0.5)
    assert not off_policy(logp, weights, -1.0, sampled_logprob=-1.4, delta=0.7)
    assert not off_policy(logp, weights, 1.0, sampled_logprob=-1.4, delta=0.5)
    assert not off_policy(logp, weights, -1.0, sampled_logprob=-2.4, delta=0.5)  # it has become likelier
    assert not off_policy(logp, weights * 0, -1.0, sampled_logprob=-1.4, delta=0.5)


def test_r3l_measures_distilled_rows_against_how_they_were_sampled_behind_the_guidance():
    """The retry's reply, log-probabilities -2.3 and -2.4, from turn 1 on; its base won, so the retry's row is the bad
    one."""
    first, second, again = ([1], [11]), ([2], [13]), ([2], [23, 24])
    episodes = [
        played(base(0, reward=1.0), first, second),
        played(retry(0, pivot=1), again, first=1),
        played(distilled(0, pivot=1), first, again),
    ]
    rows, _, _ = method_rows(R3LSettings(off_policy_delta=0.5), episodes)
    settings = {row.source_id.rpartition("/")[2]: json.loads(row.objective_settings) for row in rows}
    assert settings == {
        "base=0": {},
        "distilled=0": {"off_policy": {"delta": 0.5, "sampled_logprob": pytest.approx(-2.35)}},
    }
    assert all(math.isnan(one) for one in rows[1].logprobs[-2:])  # the row itself still hides them
    plain, _, _ = method_rows(R3LSettings(), episodes)
    assert {row.objective_settings for row in plain} == {"{}"}


def test_a_masked_row_has_no_gradient_and_is_counted_and_keeps_its_kl_term():
    mask = json.dumps({"off_policy": {"delta": 0.5, "sampled_logprob": -0.2}})
    (row,) = rows_of([record("bad", [3, 4, 5], [0, 1.0, 1.0], advantage=-1.0, objective_settings=mask)])
    assert row.needs_scoring("start")
    assert row.settings == {}
    near, far = (
        RowScores(torch.tensor([-0.3, -0.5]).double().numpy()),
        RowScores(torch.tensor([-1.0, -2.0]).double().numpy()),
    )
    assert row_gradient(row, near, 1.0).tolist() == [1.0, 1.0]
    assert row_gradient(row, far, 1.0).tolist() == [0.0, 0.0]
    counted = Measures()
    for scores in (near, far):
        measure(row, scores, torch.zeros(2).numpy(), 1.0, counted)
    assert counted.masked_rows == 1
    held = replace(row, kl_coefficient=0.1, kl_estimator="k2")
    reference = replace(far, reference=torch.tensor([-1.0, -1.0]).double().numpy())
    assert row_gradient(held, reference, 1.0).tolist() == pytest.approx(
        [0.0, -0.1]
    )  # d/dlogp of 0.1 (ref - logp)^2 / 2


def test_the_job_masks_stale_bad_rows(tmp_path):
    """Three bad rows and a good one, sampled at -2.2 to -2.4 a token as they say; the policy that is trained has about
    log(1/128) = -4.85."""
    episodes = sampled(1.0, 0.0, 0.0, 0.0)
    rows, _, _ = method_rows(GRPOSettings(kl_coefficient=0, off_policy_delta=0.5), episodes)
    start = tiny_policy(tmp_path / "start", 0)
    job = {"policy": {"path": start, "digest": "p0"}}
    assert update(tmp_path / "job", copy.deepcopy(rows), 1, **job)["masked_rows"] == 3
    rows, _, _ = method_rows(GRPOSettings(kl_coefficient=0, off_policy_delta=50), episodes)
    assert update(tmp_path / "loose", rows, 1, **job)["masked_rows"] == 0
