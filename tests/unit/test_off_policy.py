"""BAPO's bounds and the off-policy sequence mask: by hand, in the rows of methods, and in the update job."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch

from r3l.config.compose import compose
from r3l.config.methods import R3LSettings
from r3l.config.methods.rivals import BAPOSettings, GRPOSettings
from r3l.errors import ConfigError
from r3l.losses import LOSSES, Bounds, candidates, choose_bounds, masses, off_policy
from r3l.methods.bapo import SEARCH
from r3l.training.balance import balance
from r3l.training.gradients import Denominators, Measures, RowScores, measure, row_gradient
from r3l.training.parallel.ranks import Ranks
from r3l.training.scoring import OtherScores
from r3l.training.shards import survey
from tests.support.exploration_group import base, distilled, played, retry
from tests.support.rehearsal import tiny_policy, update
from tests.support.update_world import record, rows_of, write_rows
from tests.unit.test_methods import rows_of as method_rows
from tests.unit.test_methods import sampled

SETTINGS = BAPOSettings()
SEARCHED = {name: getattr(SETTINGS, name) for name in (*SEARCH, "positive_share")}
ONES = torch.ones(2, dtype=torch.float64)


def test_the_lower_bound_moves_first_then_the_upper_one():
    tried = candidates(**SEARCHED)
    assert [one.clip_low for one in tried[:5]] == pytest.approx([0.4, 0.35, 0.3, 0.25, 0.2])
    assert [one.clip_high for one in tried[:5]] == [0.2] * 5
    assert [one.clip_high for one in tried[5:]] == pytest.approx([0.25 + 0.05 * k for k in range(16)])
    assert tried[-1] == Bounds(0.2, 1.0)


def test_the_bounds_move_until_positive_rows_hold_their_share():
    """Positive row, A = 1, ratios 1.1 and 1.6; negative row, A = -1, ratios 0.5 and 1.7. Beyond 0.8 below, the negative
    mass is 0.8 + 1.7 = 2.5; the positive one, 1.1 + min(1.6, high), reaches 2.5 at 1.4. With a share of 0.4 it needs
    2.5 x 0.4 / 0.6 = 1.67, which the start has: 1.1 + 1.2 against 0.6 + 1.7."""
    tried = candidates(**SEARCHED)
    sums = masses(torch.tensor([1.1, 1.6], dtype=torch.float64), 1.0, ONES, tried)
    sums += masses(torch.tensor([0.5, 1.7], dtype=torch.float64), -1.0, ONES, tried)
    assert sums[0].tolist() == pytest.approx([2.3, 2.3])
    assert sums[4].tolist() == pytest.approx([2.3, 2.5])
    assert choose_bounds(tried, sums, 0.5) == tried[0]
    sums += masses(torch.tensor([0.1], dtype=torch.float64), -1e-3, ONES[:1], tried)  # a little more on the other side
    assert choose_bounds(tried, sums, 0.5) == pytest.approx((0.2, 0.45))
    assert choose_bounds(tried, sums, 0.4) == tried[0]
    assert choose_bounds(tried, sums, 0.9) == tried[-1]


def test_a_bound_that_would_move_the_wrong_way_is_refused():
    with pytest.raises(ConfigError, match=r"clip_low_least=0\.5.*lower clip_low_least"):
        compose(method="bapo", assignments=["method.clip_low_least=0.5"])


def test_the_update_chooses_the_bounds_over_the_whole_batch(tmp_path):
    """Two groups of one row each: neither would choose alone what both choose together. Ratios e^.5 = 1.65 (good) and 1
    (bad, and sampled by the policy itself, so that it is not scored)."""
    more = {"objective": "balanced_ratio", "objective_settings": json.dumps(SEARCHED), "reduction": "tokens"}
    records = [
        record("good", [3, 4, 5], [0, 1.0, 1.0], group_id="g0", advantage=1.0, behaviour_policy="old", **more),
        record("bad", [3, 6, 7], [0, 1.0, 1.0], group_id="g1", advantage=-1.5, **more),
    ]
    found = survey([write_rows(tmp_path / "rows.parquet", records)], "start")
    assert len(found.searches) == 1
    good, bad = rows_of(records)
    others = OtherScores(old={"good": torch.tensor([-1.0, -2.0]).numpy()})
    scored = []

    def score(rows):
        scored.extend(row.row_id for row in rows)
        return [torch.tensor([-0.5, -1.5], dtype=torch.float64).numpy()] * len(rows), 7

    denominators = Denominators(2, found.tokens)
    assert balance(found.groups, found.searches, others, denominators, Ranks(), score, 4) == 7
    assert scored == ["good"]
    # the good row's mass 2 x min(1.65, high) reaches 3 at high = 1.5
    assert others.bounds[good.search] == pytest.approx((0.2, 0.5))
    assert others.bounded(bad).settings == pytest.approx({"clip_low": 0.2, "clip_high": 0.5})
    assert others.bounded(replace(good, objective="clipped_ratio")).settings == SEARCHED  # others keep theirs
    alone = OtherScores(old=others.old)
    balance(found.groups[:1], found.searches, alone, denominators, Ranks(), score, 4)
    assert alone.bounds[good.search] == (0.4, 0.2)


def test_bapos_rows_say_where_the_search_begins():
    rows, _, credit = method_rows(SETTINGS, sampled(1.0, 0.0))
    assert [one.advantage for one in credit] == pytest.approx([0.7071, -0.7071], abs=1e-4)
    assert {row.objective for row in rows} == {"balanced_ratio"}
    assert json.loads(rows[0].objective_settings) == SEARCHED
    assert {row.reduction for row in rows} == {"tokens"}


def test_the_step_says_which_bounds_it_took(tmp_path):
    rows, _, _ = method_rows(SETTINGS, sampled(1.0, 0.0))
    start = tiny_policy(tmp_path / "start", 0)
    old = tiny_policy(tmp_path / "old", 3)
    job = {"policy": {"path": start, "digest": "new"}, "policies": {"p0": old}}
    found = update(tmp_path / "job", rows, 1, **job)
    assert found["scoring_passes"] == 2  # the behaviour policy, and once for all the policy itself
    assert found["clip_low"] == pytest.approx(0.2) or found["clip_high"] == 0.2
    plain, _, _ = method_rows(GRPOSettings(kl_coefficient=0), sampled(1.0, 0.0))
    assert update(tmp_path / "grpo", plain, 1, **job)["clip_low"] is None


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


def test_balanced_ratio_is_the_clipped_ratio_of_its_bounds():
    logp, old = torch.tensor([-0.5, -1.0]), torch.tensor([-0.9, -0.9])
    found = LOSSES["balanced_ratio"].loss(logp, old, 1.0, ONES, **SEARCHED)
    expected = LOSSES["clipped_ratio"].loss(logp, old, 1.0, ONES, clip_low=0.4, clip_high=0.2)
    assert (found.value, found.clipped) == (expected.value, expected.clipped)
