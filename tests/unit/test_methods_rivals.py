"""Rivals whose credit or lessons differ from GRPO's, on groups small enough to work out by hand."""

import math

import pytest

from r3l.config.compose import compose
from r3l.config.methods.rivals import GRPOSettings, NGRPOSettings, ReflectRetryRewardSettings
from r3l.methods import plan
from tests.support.exploration_group import base, distilled, played, reflection, retry
from tests.unit.test_methods import rows_of, sampled


def test_ngrpo_has_a_virtual_member_of_the_highest_reward():
    """One success among eight, and the ninth: mean 2/9, squares 14/9, so std = sqrt(14/9/8) = 0.440959."""
    _, _, credit = rows_of(NGRPOSettings(), sampled(1.0, *[0.0] * 7))
    assert credit[0].advantage == pytest.approx(
        (7 / 9) / math.sqrt(14 / 72), rel=1e-5
    )  # 1.76, as its paper's case has it
    assert credit[1].advantage == pytest.approx((-2 / 9) / math.sqrt(14 / 72), rel=1e-5)  # -0.50
    assert (credit[0].group_size, credit[0].group_mean) == (8, 1 / 8)


def test_ngrpo_pushes_a_group_of_failures_away_and_leaves_a_group_of_successes():
    rows, _, credit = rows_of(NGRPOSettings(kl_coefficient=0), sampled(0.0, 0.0, 0.0))
    # three 0 and a 1: mean 1/4, squares 3/4, std 1/2
    assert [one.advantage for one in credit] == pytest.approx([-0.5] * 3, rel=1e-5)
    assert {one.rule for one in credit} == {"negative"}
    assert [row.objective for row in rows] == ["clipped_ratio"] * 3
    rows, _, credit = rows_of(NGRPOSettings(kl_coefficient=0), sampled(1.0, 1.0))
    assert ([one.rule for one in credit], rows) == (["degenerate"] * 2, [])


def test_ngrpo_clips_negatives_closer_than_positives():
    rows, _, _ = rows_of(NGRPOSettings(), sampled(1.0, 0.0))
    assert {row.objective_settings for row in rows} == {'{"clip_high": 0.24, "clip_low": 0.16}'}


def test_dr_grpo_divides_by_a_constant_and_by_no_deviation():
    settings = compose(method="dr_grpo", assignments=["method.loss_tokens=50"]).method
    assert isinstance(settings, GRPOSettings)
    rows, _, credit = rows_of(settings, sampled(1.0, 0.0))
    assert [one.advantage for one in credit] == [0.5, -0.5]
    assert [row.weights for row in rows] == [[0.0, 0.0, 1 / 100]] * 2  # 1 / (50 tokens x 2 members)
    assert {row.reduction for row in rows} == {"groups"}


def failures(*retried):
    """Bases that failed, a reflection on each, and its retry with these rewards (None: there was none)."""
    episodes = [played(base(n), ([1, 2], [10 + n])) for n in range(len(retried))]
    episodes += [played(retry(n, reward=won), ([1, 2], [20 + n])) for n, won in enumerate(retried) if won is not None]
    episodes += [
        played(distilled(n, reward=won), ([1, 2], [20 + n])) for n, won in enumerate(retried) if won is not None
    ]
    reports = [reflection(n, decision="no retry" if won is None else "retry") for n, won in enumerate(retried)]
    return episodes, reports


def test_reflect_retry_reward_trains_reflections_alone_by_what_their_retries_won():
    episodes, reports = failures(1.0, 0.0, 0.0, None)
    rows, events, credit = rows_of(ReflectRetryRewardSettings(), episodes, reports)
    # 1, 0, 0: mean 1/3, std sqrt(1/3)
    top, low = (2 / 3) / math.sqrt(1 / 3), (-1 / 3) / math.sqrt(1 / 3)
    assert [(row.source_id, row.role, row.term, row.objective) for row in rows] == [
        (one.reflection_id, "reflect", "rl", "clipped_ratio") for one in reports[:3]
    ]
    assert [row.advantage for row in rows] == pytest.approx([top, low, low], rel=1e-5)
    assert {one.rule for one in credit} == {"untrained"}
    reasons = {event.subject_id: event.reason for event in events}
    assert reasons[reports[3].reflection_id] == "no retry"
    assert {reasons[episode.trajectory.trajectory_id] for episode in episodes[:4]} == {"advantage 0 (untrained)"}


def test_reflect_retry_reward_learns_nothing_where_all_retries_are_alike():
    episodes, reports = failures(0.0, 0.0)
    rows, events, _ = rows_of(ReflectRetryRewardSettings(kl_coefficient=0), episodes, reports)
    assert rows == []
    assert "all retries of its task have one reward" in {event.reason for event in events}


def test_reflect_retry_reward_retries_failures_from_the_start():
    asked = plan(ReflectRetryRewardSettings(), 8)
    assert (asked.bases, asked.retries_per_base, asked.retry_from, asked.retry_when) == (4, 1, "start", "not_success")
