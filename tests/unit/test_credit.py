"""Golden numbers of the credit functions: each worked out by hand beside its assertion."""

import math
import re
from importlib.resources import files
from typing import get_args

import numpy as np
import pytest

from r3l.config.compose import compose
from r3l.config.methods import R3LSettings
from r3l.credit.advantages import amplify, group_statistics, overlong_penalty, scaled_advantages
from r3l.credit.turns import PivotMask, base_mask_turn, distilled_mask_turn, response_weights
from r3l.methods import credit_stage
from tests.support.exploration_group import base, distilled

ONE_IN_EIGHT = [1, 0, 0, 0, 0, 0, 0, 0]
PAPER = {"alpha": 3.0, "top_rule": "group_max", "top_value": 3.0, "success_threshold": 1.0}


def credited(method, rewards, **settings):
    config = compose(method=method, assignments=[f"method.{name}={value}" for name, value in settings.items()])
    credit, events = credit_stage(config.method, [base(n, reward=reward) for n, reward in enumerate(rewards)])
    assert events == []
    return [one.advantage for one in credit], [one.rule for one in credit]


def positive_over_negative(advantages):
    return round(sum(one for one in advantages if one > 0) / -sum(one for one in advantages if one < 0), 2)


@pytest.mark.parametrize("scale", ["std", "none"])
def test_equal_rewards_that_rounding_parts_are_worth_exactly_nothing(scale):
    """The mean of three times 0.1 is 0.1 + 1.4e-17 in float64."""
    rewards = [0.1, 0.1, 0.1]
    assert (np.asarray(rewards) - np.mean(rewards)).any()
    assert scaled_advantages(rewards, scale).tolist() == [0.0, 0.0, 0.0]


def test_std_has_ddof_1():
    # mean 1/8; squares (49 + 7) / 64 = 7/8; over 7 members: 1/8
    assert group_statistics(ONE_IN_EIGHT) == (0.125, pytest.approx(math.sqrt(1 / 8)))
    assert group_statistics([0.5]) == (0.5, 0.0)


def test_plain_grpo_gives_the_lone_success_of_eight_2_47():
    # (7/8) / sqrt(1/8) = 2.4749; each failure -(1/8) / sqrt(1/8) = -0.35355; epsilon 1e-6 moves the sixth digit
    advantages, rules = credited("grpo", ONE_IN_EIGHT)
    assert advantages == pytest.approx([2.47487, *[-0.353553] * 7], abs=1e-5)
    assert rules == ["positive", *["negative"] * 7]
    assert round(advantages[0], 2) == 2.47


@pytest.mark.parametrize(("method", "lone", "failure", "mass"), [
    ("paper", 3.0, -0.353553, 1.21),  # 3 / (7 * 0.353553) = 1.2122
    ("released", 1.0, -0.125, 1.14),  # 1 / (7 * 0.125) = 1.1429
])  # fmt: skip
def test_advantage_mass_of_one_success_in_eight(method, lone, failure, mass):
    advantages, rules = credited(method, ONE_IN_EIGHT)
    assert advantages == pytest.approx([lone, *[failure] * 7], abs=1e-5)
    assert rules[0] == "top"
    assert positive_over_negative(advantages) == mass


def test_the_refused_combination_would_have_left_the_mass_at_0_40():
    scaled = scaled_advantages(ONE_IN_EIGHT, "std")
    advantages, _ = amplify(ONE_IN_EIGHT, scaled, **(PAPER | {"top_value": 1.0}))
    assert advantages[0] == 1.0
    assert positive_over_negative(advantages) == 0.40  # 1 / 2.4749


def test_ties_at_the_top_all_get_alpha():
    # rewards 1 1 0 0: both 1 are R_max; mean .5, std sqrt(4 * .25 / 3) = .57735; failures -.5 / .57735 = -.866025
    advantages, rules = credited("paper", [1, 1, 0, 0])
    assert advantages == pytest.approx([3, 3, -0.866025, -0.866025], abs=1e-5)
    assert rules == ["top", "top", "negative", "negative"]


def test_partial_rewards_are_scaled_by_alpha_below_the_top():
    # rewards 1 .6 .2 .2: mean .5; squares .25 + .01 + .09 + .09 = .44, / 3 = .146667, std .382971
    # .1 / .382971 = .261116, times 3 = .783349; -.3 / .382971 = -.783349
    advantages, rules = credited("paper", [1.0, 0.6, 0.2, 0.2])
    assert advantages == pytest.approx([3, 0.783349, -0.783349, -0.783349], abs=1e-5)
    assert rules == ["top", "positive", "negative", "negative"]
    # released: 3 * .1 = .3 and -.3
    assert credited("released", [1.0, 0.6, 0.2, 0.2])[0] == pytest.approx([1, 0.3, -0.3, -0.3])


def test_negative_rewards_are_credited_like_others():
    # WebShop as released: -.1 for a malformed reply. Rewards -.1 .5 -> mean .2, std sqrt(2 * .09) = .424264
    advantages, rules = credited("paper", [-0.1, 0.5])
    assert advantages == pytest.approx([-0.3 / math.sqrt(0.18), 3.0], abs=1e-5)
    assert rules == ["negative", "top"]
    assert credited("released", [-0.1, 0.5])[0] == pytest.approx([-0.3, 0.9])  # .5 is no success: 3 * .3


@pytest.mark.parametrize("rewards", [[0.0] * 8, [0.3] * 3, [-0.1, -0.1]])
@pytest.mark.parametrize("method", ["paper", "released", "grpo", "grpo_pa", "opmd", "gspo"])
def test_equal_rewards_without_success_teach_nothing(method, rewards):
    assert credited(method, rewards) == ([0.0] * len(rewards), ["degenerate"] * len(rewards))


def test_all_solved_is_degenerate_in_the_paper_and_1_each_as_released():
    assert credited("paper", [1, 1, 1]) == ([0, 0, 0], ["degenerate"] * 3)
    assert credited("released", [1, 1, 1]) == ([1, 1, 1], ["top"] * 3)


@pytest.mark.parametrize("method", ["paper", "released", "grpo", "opmd"])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_lone_member_gets_nothing(method, reward):
    assert credited(method, [reward]) == ([0.0], ["alone"])


def test_without_positive_is_plain_grpo_credit():
    assert credited("r3l_without_positive", [1, 0.5, 0, 0])[0] == credited("grpo", [1, 0.5, 0, 0])[0]


def test_grpo_and_opmd_with_amplification():
    # 1 .5 0: mean .5, std .5, so +-1: top 3, 0 stays 0, -1; opmd: R - mean
    assert credited("grpo_pa", [1, 0.5, 0])[0] == pytest.approx([3, 0, -1], abs=1e-5)
    assert credited("opmd_pa", [1, 0.5, 0])[0] == pytest.approx([3, 0, -0.5])
    # 1 .75 .5 0, opmd: mean .5625; .1875 * 3 = .5625
    assert credited("opmd_pa", [1, 0.75, 0.5, 0])[0] == pytest.approx([3, 0.5625, -0.0625, -0.5625])


def test_alpha_1_leaves_only_the_top_rule():
    advantages, _ = credited("paper", [1.0, 0.6, 0.2, 0.2], alpha=1)
    assert advantages == pytest.approx([1, 0.261116, -0.783349, -0.783349], abs=1e-5)


@pytest.mark.parametrize(("amplify_distilled", "value", "rule"), [(True, 3.0, "top"), (False, 0.866025, "positive")])
def test_distilled_trajectories_may_keep_their_advantage(amplify_distilled, value, rule):
    # rewards 1, 0, 0 and the retry's 1: mean 0.5, std 0.57735, A = +-0.866025
    method = compose(method="paper", assignments=[f"method.amplify_distilled={str(amplify_distilled).lower()}"]).method
    members = [*(base(n, reward=reward) for n, reward in enumerate((1.0, 0.0, 0.0))), distilled(1, reward=1.0)]
    credit, _ = credit_stage(method, members)
    assert [one.advantage for one in credit] == pytest.approx([3, -0.866025, -0.866025, value], abs=1e-5)
    assert [one.rule for one in credit] == ["top", "negative", "negative", rule]


def test_overlong_penalty_rises_over_the_last_tokens():
    assert overlong_penalty([50, 80, 90, 100, 130], limit=100, soft=20).tolist() == [0, 0, 0.5, 1, 1]


def test_pivot_mask_is_zero_before_the_pivot():
    assert [mask.tolist() for mask in response_weights([2, 1, 3], 2)] == [[0, 0], [0], [1, 1, 1]]
    assert [base_mask_turn([3, 1, 2], rule) for rule in ("both", "retry_only", "off")] == [1, 0, 0]
    assert base_mask_turn([], "both") == 0
    assert [distilled_mask_turn(3, rule) for rule in ("both", "retry_only", "off")] == [3, 3, 0]
    assert distilled_mask_turn(None, "both") == 0


def test_settings_and_sql_know_the_rules_of_the_pivot_mask_and_no_other():
    rules = set(get_args(PivotMask))
    assert set(get_args(R3LSettings.model_fields["pivot_mask"].annotation)) == rules
    for path in ("views/credit_macros.sql", "invariants/8_credit.sql"):
        named = re.findall(r"pivot_mask (?:=|:=) '(\w+)'", files("r3l.store").joinpath(path).read_text())
        assert len(named) >= 2, path
        assert set(named) <= rules, path
