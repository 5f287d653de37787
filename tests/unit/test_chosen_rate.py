"""The learning rate of each arm, chosen on the other policies; worked out by hand."""

import math

import pytest

from r3l.lab.study.pages.chosen_rate import at_chosen_rates, line, over_common_policies, with_all_rates


def flat(height):
    return {-1: height, 11: height}


# By policy and rate, one or two runs. Each policy is best at the rate that the other is worst at.
RUNS = {"a": {1e-4: [flat(0.2)], 1e-3: [flat(0.5), flat(0.7)]}, "b": {1e-4: [flat(0.5)], 1e-3: [flat(0.3)]}}


def test_a_policy_does_not_choose_its_own_rate():
    found = at_chosen_rates("R3L", RUNS, 1000)
    assert found.rates == {"a": 1e-4, "b": 1e-3}
    assert found.area == pytest.approx((0.2 + 0.3) / 2)  # at its own best rate: (.6 + .5) / 2
    assert found.area_error == pytest.approx(0.05)  # half of .2 and .3's distance
    assert found.plateau == pytest.approx(0.25)
    assert line(found) == "| R3L | 0.0001, 0.001 | 2 | 0.250 ± 0.050 | 0.250 ± 0.050 |"


def test_the_runs_of_a_policy_are_averaged_before_the_policies_are():
    third = {1e-4: [flat(0.0)], 1e-3: [flat(0.1)]}  # a and c together prefer 1e-3 for b: .35 against .1
    found = at_chosen_rates("R3L", RUNS | {"c": third}, 1000)
    assert found.rates == {"a": 1e-4, "b": 1e-3, "c": 1e-3}  # for a: (.5 + 0) / 2 against (.3 + .1) / 2
    assert found.area == pytest.approx((0.2 + 0.3 + 0.1) / 3)


def test_rates_are_compared_over_the_policies_that_have_them_all():
    assert with_all_rates(RUNS | {"c": {1e-3: [flat(0.9)]}}) == RUNS
    assert with_all_rates({"a": {1e-3: [flat(0.2)]}, "b": {1e-3: [flat(0.3)]}}) == {}


def test_arms_are_compared_over_the_policies_that_all_of_them_have():
    one = {1e-4: [flat(0.1)], 1e-3: [flat(0.2)]}
    assert over_common_policies({"R3L": RUNS, "GRPO": {"b": one, "c": one}}) == {
        "R3L": {"b": RUNS["b"]},
        "GRPO": {"b": one},
    }
    assert over_common_policies({"R3L": RUNS, "GRPO": {"c": one}}) == over_common_policies({}) == {}


def test_two_runs_of_one_policy_are_one_policy_and_choose_for_themselves():
    found = at_chosen_rates("R3L", {"a": RUNS["a"]}, 1000)
    assert found.rates == {"a": 1e-3}
    assert found.area == pytest.approx(0.6)
    assert math.isnan(found.area_error)
    assert line(found) == "| R3L | 0.001 | 1 | 0.600 | 0.600 |"
