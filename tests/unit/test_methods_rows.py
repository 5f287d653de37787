"""Rows, weights and masks of a small group whose every number is written out here."""

import json
import math

import pytest

from r3l.config.methods import R3LSettings
from r3l.config.methods.rivals import GRPOSettings
from r3l.methods import credit_stage, training_rows_stage
from tests.support.exploration_group import base, distilled, played, reflection, retry


def group(retry_reward=1.0):
    """Base 0 fails (3 turns), is retried from turn 1 with success; base 1 fails alone."""
    return [
        played(base(0, reward=0.0, turns=3), ([1, 2], [3, 4]), ([5], [6, 7, 8]), ([9], [10])),
        played(base(1, reward=0.0), ([1, 2], [11, 12])),
        played(retry(0, reward=retry_reward, pivot=1, turns=2), ([20, 21, 5], [13, 14]), first=1),
        played(distilled(0, reward=retry_reward, pivot=1, turns=2), ([1, 2], [3, 4]), ([5], [13, 14])),
    ]


def rows_of(settings, episodes=None, reflections=None):
    episodes = group() if episodes is None else episodes
    reflections = [reflection(0, pivot=1)] if reflections is None else reflections
    credit, dropped = credit_stage(settings, [episode.trajectory for episode in episodes])
    rows, events = training_rows_stage(settings, episodes, reflections, credit)
    return {row.source_id: row for row in rows}, [*dropped, *events], credit


def test_r3l_masks_the_shared_prefix_on_both_members_and_divides_by_all_sampled_tokens():
    rows, events, credit = rows_of(R3LSettings())
    assert [(c.rule, c.mask_turn) for c in credit] == [("negative", 1), ("negative", 0), ("top", 1)]
    first = rows[base(0).trajectory_id]
    assert first.token_ids == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    w = 1 / (6 * 3)  # six sampled tokens, masked ones counted; three members
    assert first.weights == pytest.approx([0, 0, 0, 0, 0, w, w, w, 0, w])
    assert first.trained_tokens == 4
    assert first.logprobs == pytest.approx([0, 0, -0.3, -0.4, 0, -0.6, -0.7, -0.8, 0, -1.0])
    stitched = rows[distilled(0).trajectory_id]
    assert stitched.token_ids == [1, 2, 3, 4, 5, 13, 14]
    assert stitched.weights == pytest.approx([0, 0, 0, 0, 0, 1 / 12, 1 / 12])
    assert stitched.logprobs == pytest.approx(
        [0, 0, -0.3, -0.4, 0, math.nan, math.nan], nan_ok=True
    )  # sampled behind the guidance
    assert (stitched.advantage, stitched.reduction, stitched.objective, stitched.kl_estimator) == (
        3.0,
        "groups",
        "policy_gradient",
        "none",
    )
    assert events == []


def test_r3l_learns_the_reflection_and_the_guided_retry_that_worked():
    rows, _, _ = rows_of(R3LSettings())
    reflected = rows[reflection(0).reflection_id]
    assert (reflected.role, reflected.term, reflected.objective, reflected.reduction) == (
        "reflect",
        "sft",
        "cross_entropy",
        "groups",
    )
    assert reflected.token_ids == [30, 31, 32, 33]
    sixth = 1 / (2 * 3)  # two tokens are learned of either row; the group has three members
    assert reflected.weights == pytest.approx([0, 0, sixth, sixth])
    guided = rows[retry(0).trajectory_id]
    assert (guided.role, guided.advantage, guided.coefficient) == ("retry", 1.0, 1.0)
    assert guided.token_ids == [1, 2, 3, 4, 20, 21, 5, 13, 14]
    assert guided.weights == pytest.approx([0, 0, 0, 0, 0, 0, 0, sixth, sixth])
    assert guided.logprobs == pytest.approx([0, 0, -0.3, -0.4, 0, 0, 0, -1.3, -1.4])


def test_a_retry_that_did_not_help_is_no_lesson_and_says_so():
    rows, events, _ = rows_of(R3LSettings(), group(retry_reward=0.0))
    assert rows == {}  # a group of failures has no gradient either
    sources = (reflection(0).reflection_id, retry(0).trajectory_id)
    assert {(e.event, e.subject_id, e.reason) for e in events} == {
        *(("no_gradient", one.trajectory_id, "advantage 0 (degenerate)") for one in (base(0), base(1), distilled(0))),
        *(("no_meta_task", source, "the retry's reward 0 is not above 0") for source in sources),
    }


def test_guidance_in_the_system_prompt_keeps_no_turn_before_the_retrys_own():
    episodes = group()
    whole = played(retry(0, reward=1.0, pivot=1, turns=2), ([20, 21, 1, 2, 3, 4, 5], [13, 14]), first=1)
    rows, _, _ = rows_of(R3LSettings(guidance_position="system"), [*episodes[:2], whole, episodes[3]])
    assert rows[retry(0).trajectory_id].token_ids == [20, 21, 1, 2, 3, 4, 5, 13, 14]
    assert rows[retry(0).trajectory_id].weights == pytest.approx([0, 0, 0, 0, 0, 0, 0, 1 / 6, 1 / 6])


@pytest.mark.parametrize(
    ("normalisation", "weight", "reduction"),
    [("trajectory", 1 / 18, "groups"), ("trajectory_unmasked", 1 / 12, "groups"), ("token", 1.0, "tokens")],
)
def test_each_normalisation_gives_its_weights_and_reduction(normalisation, weight, reduction):
    rows, _, _ = rows_of(R3LSettings(loss_normalisation=normalisation))
    row = rows[base(0).trajectory_id]
    assert max(row.weights) == pytest.approx(weight)
    assert row.reduction == reduction


@pytest.mark.parametrize(("rule", "expected"), [("both", [1, 0, 1]), ("retry_only", [0, 0, 1]), ("off", [0, 0, 0])])
def test_pivot_mask_is_a_setting(rule, expected):
    _, _, credit = rows_of(R3LSettings(pivot_mask=rule))
    assert [c.mask_turn for c in credit] == expected


def test_sft_as_rl_joins_the_rl_term():
    rows, _, _ = rows_of(
        R3LSettings(
            sft_as_rl=True, loss_normalisation="token", loss_factor=0.5, kl_coefficient=0.001, kl_estimator="k2"
        )
    )
    guided = rows[retry(0).trajectory_id]
    assert (guided.term, guided.objective, guided.reduction, guided.coefficient) == (
        "rl",
        "policy_gradient",
        "tokens",
        0.5,
    )
    assert (guided.kl_coefficient, guided.kl_estimator) == (0.001, "k2")


def test_meta_tasks_have_no_kl():
    rows, _, _ = rows_of(R3LSettings(kl_coefficient=0.01))
    assert {(one.term, one.kl_coefficient) for one in rows.values()} == {("rl", 0.01), ("sft", 0.0)}


@pytest.mark.parametrize("reduction", ["tokens", "sum"])
def test_sft_as_a_token_mean_or_a_plain_sum(reduction):
    rows, _, _ = rows_of(R3LSettings(sft_reduction=reduction, sft_weight=0.25))
    guided = rows[retry(0).trajectory_id]
    assert (guided.reduction, guided.coefficient) == (reduction, 0.25)
    assert guided.weights == [0, 0, 0, 0, 0, 0, 0, 1, 1]


def test_a_meta_task_row_weighs_as_an_rl_row_of_advantage_1_of_its_group():
    """With every loss of a token 1, a row adds advantage x its weights: 1/3 for a whole row of a group of three."""
    rows, _, _ = rows_of(R3LSettings(pivot_mask="off"))
    mass = {source: sum(row.weights) for source, row in rows.items()}
    assert mass == pytest.approx(
        {
            base(0).trajectory_id: 1 / 3,
            base(1).trajectory_id: 1 / 3,
            distilled(0).trajectory_id: 1 / 3,
            reflection(0).reflection_id: 1 / 3,
            retry(0).trajectory_id: 1 / 3,
        }
    )
    assert {row.reduction for row in rows.values()} == {
        "groups"
    }  # the batch's mean over its groups, with or without corrections
    assert {rows[source].advantage for source in (reflection(0).reflection_id, retry(0).trajectory_id)} == {1.0}


def test_grpo_rows_carry_the_clipped_ratio_and_the_kl():
    rows, _, credit = rows_of(GRPOSettings())
    row = rows[distilled(0).trajectory_id]
    assert row.objective == "clipped_ratio"
    assert json.loads(row.objective_settings) == {"clip_low": 0.2, "clip_high": 0.2}
    assert (row.kl_coefficient, row.kl_estimator) == (0.01, "k2")  # its reply was sampled under guidance
    sampled = rows[base(0).trajectory_id]
    assert (sampled.kl_coefficient, sampled.kl_estimator) == (0.01, "k3")
    assert row.advantage == pytest.approx(
        (2 / 3) / ((1 / 3) ** 0.5 + 1e-6)
    )  # mean 1/3, variance (1/9 + 1/9 + 4/9) / 2 = 1/3
    assert {c.mask_turn for c in credit} == {0}


def test_a_group_of_failures_has_no_gradient_without_kl_and_one_with_it():
    episodes = [played(base(0), ([1], [2])), played(base(1), ([1], [3]))]
    rows, events, _ = rows_of(R3LSettings(), episodes, [])
    assert rows == {}
    assert [(e.event, e.reason) for e in events] == [("no_gradient", "advantage 0 (degenerate)")] * 2
    rows, events, _ = rows_of(GRPOSettings(), episodes, [])
    assert [row.advantage for row in rows.values()] == [0.0, 0.0]
    assert events == []


def test_broken_attempts_are_dropped_with_their_reason():
    broken = base(1, status="environment_error", reason="worker died twice")
    credit, events = credit_stage(R3LSettings(), [base(0, reward=1.0), broken])
    assert [(c.rule, c.group_size) for c in credit] == [("alone", 1)]
    assert [(e.stage, e.event, e.subject_id, e.reason) for e in events] == [
        ("credit", "dropped", broken.trajectory_id, "environment_error: worker died twice")
    ]


def test_a_reply_without_weight_anywhere_is_fully_masked():
    episodes = [*group(), played(base(2, reward=0.0), ([1, 2], []))]
    _, events, _ = rows_of(R3LSettings(), episodes)
    assert [(e.subject_id, e.reason) for e in events] == [
        (base(2).trajectory_id, "fully masked: no sampled token from turn 0 on")
    ]


def test_a_chain_of_retries_masks_what_is_shared_with_the_base():
    """Retry 1 keeps 2 turns of distilled 0, which keeps 1 turn of the base: one turn is shared by all three."""
    members = [
        base(0, reward=0.0, turns=3),
        distilled(0, pivot=1, reward=0.5, turns=4),
        distilled(
            1, pivot=2, base_attempt=0, parent_id=distilled(0).trajectory_id, shared_turns=1, reward=1.0, turns=4
        ),
    ]
    credit, _ = credit_stage(R3LSettings(), members)
    assert [c.mask_turn for c in credit] == [1, 1, 1]


def test_the_base_of_several_retries_is_masked_up_to_the_smallest_pivot():
    members = [
        base(0, turns=4),
        distilled(0, pivot=3, reward=1.0),
        distilled(1, pivot=1, base_attempt=0),
        base(1),
        distilled(2, pivot=0, base_attempt=1),
    ]
    credit, _ = credit_stage(R3LSettings(), members)
    assert [c.mask_turn for c in credit] == [1, 3, 1, 0, 0]
