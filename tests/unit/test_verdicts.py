"""Statistics of claims, worked out by hand: Student's t with two degrees of freedom has P(|T| > t) = 1 - t / sqrt(t^2 +
2)."""

import math

import pytest

from r3l.lab.study.compare import area, binomial_variance
from r3l.lab.study.verdicts import Gap, adjust, gap_over_policies, policies_to_decide, verdict

pytest.importorskip("scipy", reason="the extra [experiments] is not installed")
GAPS = {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.3}
STARTS = {0: "a", 1: "b", 2: "c", 3: "a"}


def test_seeds_of_one_policy_are_averaged_first():
    found = gap_over_policies(GAPS, STARTS, dict.fromkeys(GAPS, 0.0))
    # means .2, .2, .3: mean .2333, s.e. (.01 / 3)^.5 / 3^.5 = 1 / 30; t = 7
    assert (found.mean, found.error, found.freedom) == (pytest.approx(0.7 / 3), pytest.approx(1 / 30), 2)
    assert (found.policies, found.seeds) == (3, 4)
    assert found.p == pytest.approx(1 - 7 / math.sqrt(51))
    low, high = found.interval  # t of .975 with 2 degrees: .95 sqrt(2 / (1 - .95^2))
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) / 30
    assert (low, high) == (pytest.approx(0.7 / 3 - half), pytest.approx(0.7 / 3 + half))


def test_the_error_is_never_below_that_of_the_test_episodes():
    found = gap_over_policies(GAPS, STARTS, dict.fromkeys(GAPS, 0.01))
    assert found.error == pytest.approx(math.sqrt((0.02 / 4 + 0.01 + 0.01) / 9))  # policy a has two seeds


def test_one_policy_decides_nothing_about_others():
    found = gap_over_policies({0: 0.5, 1: 0.6}, {0: "a", 1: "a"}, {0: 0.01, 1: 0.01})
    assert math.isnan(found.p)
    assert math.isnan(found.interval[0])
    assert verdict(found, math.nan, "higher") == "one policy only: as claimed"
    assert verdict(found, math.nan, "lower") == "one policy only: not as claimed"


def test_binomial_variance_of_a_mean_over_two_evaluations():
    # 8 episodes: 0.0 is drawn to 1/10 and 0.5 stays; each weighs 1/2
    expected = 0.25 * 0.1 * 0.9 / 8 + 0.25 * 0.5 * 0.5 / 8
    assert binomial_variance(area, {-1: 0.0, 1: 0.5}, 8) == pytest.approx(expected)


def test_benjamini_and_hochberg_by_hand():
    # sorted .01, .03, .04: .01 x 3/1, .03 x 3/2, .04 x 3/3, made monotone from the right
    q = adjust([0.01, 0.04, math.nan, 0.03])
    assert q[:2] == pytest.approx([0.03, 0.04])
    assert math.isnan(q[2])
    assert q[3] == pytest.approx(0.04)
    assert adjust([]) == []


@pytest.mark.parametrize(("size", "policies"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_the_policies_that_decide_a_gap_are_those_of_the_tables_of_the_t_test(size, policies):
    """Cohen's d and n of the one-sample t test, two-sided 0.05, power 0.8, as G*Power prints them."""
    spread = 0.3
    assert policies_to_decide(size * spread, Gap(0.7, spread / math.sqrt(5), 4, 5, 5)) == policies


@pytest.mark.parametrize("gap", [Gap(0.1, 0.1, 0, 1, 3), Gap(0.1, 0.0, 4, 5, 5), Gap(0.1, 9.0, 4, 5, 5)])
def test_nothing_is_said_where_the_spread_is_not_known_or_too_large(gap):
    assert policies_to_decide(0.15, gap) is None


@pytest.mark.parametrize(("mean", "q", "direction", "said"), [
    (0.2, 0.05, "higher", "holds"),
    (0.2, 0.051, "higher", "undecided"),
    (-0.2, 0.01, "higher", "does not hold (the other way round)"),
    (-0.2, 0.01, "lower", "holds"),
    (0.2, 0.01, "same", "does not hold"),
    (0.2, 0.2, "same", "no clear difference"),
])  # fmt: skip
def test_a_verdict_follows_from_gap_q_and_direction(mean, q, direction, said):
    assert verdict(Gap(mean, 0.1, 4, 5, 5), q, direction) == said


def test_a_null_claim_is_decided_about_as_often_as_it_says():
    """Five policies without a difference: a p below .05 in 5 % of 2,000 draws, give or take four standard errors."""
    import random

    draw = random.Random(0)
    ps = []
    for _ in range(2000):
        gaps = {seed: draw.gauss(0, 0.1) for seed in range(5)}
        ps.append(gap_over_policies(gaps, {seed: str(seed) for seed in gaps}, dict.fromkeys(gaps, 0.0)).p)
    assert abs(sum(p < 0.05 for p in ps) / 2000 - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2000)
