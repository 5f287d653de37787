"""What sets each method apart, on groups small enough to check by eye."""

import inspect
import json

import pytest

from r3l.config.compose import compose
from r3l.config.methods import R3LSettings
from r3l.config.methods.rivals import (
    CritiqueGRPOSettings,
    DAPOSettings,
    GSPOSettings,
    OPMDSettings,
    RAFTSettings,
    ReflectGRPOSettings,
    RLOOSettings,
)
from r3l.losses import LOSSES
from r3l.methods import METHODS, counted_groups, credit_stage, plan, training_rows_stage
from tests.support.exploration_group import base, distilled, played, reflection, retry


def rows_of(settings, episodes, reflections=()):
    credit, dropped = credit_stage(settings, [episode.trajectory for episode in episodes])
    rows, events = training_rows_stage(settings, episodes, list(reflections), credit)
    return rows, [*dropped, *events], credit


def sampled(*rewards, **more):
    """Base n says the token 10 + n."""
    return [played(base(n, reward=reward, **more), ([1, 2], [10 + n])) for n, reward in enumerate(rewards)]


def test_raft_keeps_the_successes_and_learns_them_by_token_mean():
    rows, events, credit = rows_of(RAFTSettings(), sampled(1.0, 0.9, 0.0))
    assert [(r.source_id, r.objective, r.reduction, r.advantage, r.kl_estimator) for r in rows] == [
        (base(0).trajectory_id, "cross_entropy", "tokens", 1.0, "none")
    ]
    assert [c.rule for c in credit] == ["kept", "rejected", "rejected"]
    assert {(e.event, e.reason) for e in events} == {("no_gradient", "advantage 0 (rejected)")}
    rows, _, _ = rows_of(RAFTSettings(success_threshold=0.9), sampled(1.0, 0.9, 0.0))
    assert len(rows) == 2


def test_raft_learns_from_a_group_of_successes_and_from_a_lone_one():
    assert len(rows_of(RAFTSettings(), sampled(1.0, 1.0))[0]) == 2
    assert len(rows_of(RAFTSettings(), sampled(1.0))[0]) == 1


def test_opmd_divides_by_one_plus_tau():
    rows, _, _ = rows_of(OPMDSettings(tau=3.0), sampled(1.0, 0.0))
    assert [(r.objective, r.coefficient, r.advantage, r.kl_coefficient) for r in rows] == [
        ("policy_gradient", 0.25, 0.5, 0.0),
        ("policy_gradient", 0.25, -0.5, 0.0),
    ]


def test_rloo_compares_each_with_the_mean_of_the_others():
    rows, _, credit = rows_of(RLOOSettings(), sampled(1.0, 0.5, 0.0))
    assert [c.advantage for c in credit] == pytest.approx([1 - 0.25, 0.5 - 0.5, 0 - 0.75])
    assert [(r.objective, r.kl_coefficient) for r in rows] == [("policy_gradient", 0.0)] * 2
    assert [c.advantage for c in rows_of(RLOOSettings(), sampled(1.0))[2]] == [0.0]


def test_gspo_has_a_ratio_a_sequence():
    rows, _, _ = rows_of(GSPOSettings(), sampled(1.0, 0.0))
    assert {r.objective for r in rows} == {"sequence_ratio"}
    assert json.loads(rows[0].objective_settings) == {"clip_low": 0.0003, "clip_high": 0.0004}
    assert (rows[0].kl_coefficient, rows[0].kl_estimator) == (0.01, "k3")


def test_dapo_clips_higher_and_takes_the_mean_over_all_tokens():
    rows, _, _ = rows_of(DAPOSettings(), sampled(1.0, 0.0))
    assert json.loads(rows[0].objective_settings) == {"clip_low": 0.2, "clip_high": 0.28}
    assert {(r.reduction, r.kl_coefficient, max(r.weights)) for r in rows} == {("tokens", 0.0, 1.0)}


def test_dapo_dynamic_sampling_takes_equal_groups_out_of_the_mean():
    counted, _, credit = rows_of(DAPOSettings(), sampled(0.0, 0.0))
    assert [r.advantage for r in counted] == [0.0, 0.0]  # their tokens count in the mean over all tokens
    assert counted_groups(credit) == 1
    rows, events, credit = rows_of(DAPOSettings(dynamic_sampling=True), sampled(0.0, 0.0))
    assert rows == []
    assert [(e.event, e.reason) for e in events] == [("no_gradient", "advantage 0 (filtered)")] * 2
    assert counted_groups(credit) == 0
    assert len(rows_of(DAPOSettings(dynamic_sampling=True), sampled(1.0, 0.0))[0]) == 2


def test_dapo_overlong_shaping_ranks_equal_rewards_by_length():
    settings = DAPOSettings(overlong_tokens=20, overlong_limit=100, scale="none")
    _, _, credit = rows_of(
        settings, [played(base(n, reward=1.0, response_tokens=length), ([1], [2])) for n, length in enumerate([50, 90])]
    )
    assert [(c.reward, c.penalty, c.advantage) for c in credit] == [(1.0, 0.0, 0.25), (1.0, 0.5, -0.25)]


def test_dynamic_sampling_goes_by_the_reward_before_the_shaping():
    settings = DAPOSettings(overlong_tokens=20, overlong_limit=100, dynamic_sampling=True)
    _, _, credit = rows_of(
        settings, [played(base(n, reward=1.0, response_tokens=length), ([1], [2])) for n, length in enumerate([50, 90])]
    )
    assert [c.rule for c in credit] == ["filtered", "filtered"]


def pair():
    """A failed base and its distilled retry from turn 1, with the retry as it ran."""
    return [
        played(base(0, reward=0.0, turns=2), ([1], [2]), ([3], [4])),
        played(retry(0, reward=1.0, pivot=1, turns=2), ([9, 3], [5]), first=1),
        played(distilled(0, reward=1.0, pivot=1, turns=2), ([1], [2]), ([3], [5])),
    ]


def test_reflect_grpo_has_guided_retries_in_the_group_and_nothing_else_of_r3l():
    made = plan(ReflectGRPOSettings(), 8)
    assert (made.bases, made.reflection, made.retries_per_base, made.retry_from, made.retry_when) == (
        4, "report", 1, "start", "always",
    )  # fmt: skip
    rows, events, credit = rows_of(ReflectGRPOSettings(), pair(), [reflection(0, pivot=1)])
    assert [(c.kind, c.mask_turn) for c in credit] == [("base", 0), ("distilled", 0)]
    assert [c.advantage for c in credit] == pytest.approx([-0.5 / 0.5**0.5, 0.5 / 0.5**0.5], rel=1e-5)  # not amplified
    assert {(r.role, r.objective, r.kl_coefficient) for r in rows} == {("explore", "clipped_ratio", 0.01)}
    assert [(e.event, e.subject_id, e.reason) for e in events] == [
        ("no_meta_task", reflection(0).reflection_id, "this method learns no meta-task")
    ]


def refinements(*rewards):
    return [
        *sampled(*[0.0] * len(rewards)),
        *(played(distilled(n, reward=reward), ([1, 2], [20 + n])) for n, reward in enumerate(rewards)),
    ]


@pytest.mark.parametrize(("rewards", "best"), [((0.2, 1.0, 1.0), 1), ((0.2, 0.4, 0.1), 1), ((0.0, 0.0, 0.0), 0)])
def test_critique_grpo_adds_the_best_refinement_with_the_shaped_loss(rewards, best):
    made = plan(CritiqueGRPOSettings(), 3)
    assert (made.bases, made.reflection, made.retry_from, made.retry_when) == (3, "critique", "start", "always")
    rows, events, credit = rows_of(CritiqueGRPOSettings(), refinements(*rewards))
    assert [c.group_size for c in credit] == [4] * 4
    assert len({c.group_id for c in credit}) == 1
    shaped = [r for r in rows if r.objective == "shaped_ratio"]
    assert [(r.source_id, r.role, json.loads(r.objective_settings)) for r in shaped] == [
        (distilled(best).trajectory_id, "refinement", {"gamma": 0.1})
    ]
    assert {r.objective for r in rows if r.role == "explore"} == {"clipped_ratio"}
    assert {e.subject_id for e in events} == {distilled(n).trajectory_id for n in range(3) if n != best}
    assert {e.event for e in events} == {"dropped"}


def test_a_group_without_refinement_is_grpos():
    _, events, credit = rows_of(CritiqueGRPOSettings(), sampled(1.0, 0.0))
    assert [c.group_size for c in credit] == [2, 2]
    assert events == []


def test_r3l_without_reflect_samples_n_bases():
    made = plan(R3LSettings(reflect=False), 8)
    assert (made.bases, made.reflection, made.retries_per_base) == (8, "none", 0)


def test_released_learns_a_confirmed_success_and_a_shorter_solution():
    settings = compose(method="released").method
    solved = [played(base(0, reward=1.0, turns=5), ([1], [2]))]
    rows, _, _ = rows_of(settings, solved, [reflection(0, outcome="success", decision="no retry: outcome success")])
    assert [(r.role, r.term, r.objective, r.advantage) for r in rows] == [
        ("explore", "rl", "policy_gradient", 0.0),  # alone in its group; there for its KL term
        ("reflect", "rl", "policy_gradient", 1.0),
    ]
    for turns, learned in ((4, {"reflect", "retry"}), (5, set())):
        episodes = [*solved, *(played(one(0, reward=1.0, turns=turns), ([9], [5])) for one in (retry, distilled))]
        rows, _, _ = rows_of(settings, episodes, [reflection(0, outcome="success_but_inefficient")])
        assert {r.role for r in rows} - {"explore"} == learned


def test_a_false_success_is_no_lesson():
    settings = compose(method="released").method
    rows, events, _ = rows_of(
        settings, sampled(0.0, 1.0), [reflection(0, outcome="success", decision="no retry: outcome success")]
    )
    assert {r.role for r in rows} == {"explore"}
    assert [(e.event, e.reason) for e in events] == [("no_meta_task", "no retry: outcome success")]


def test_a_reflection_whose_retry_is_lost_is_no_lesson():
    rows, events, _ = rows_of(R3LSettings(), sampled(0.0, 1.0), [reflection(0)])
    assert {r.role for r in rows} == {"explore"}
    assert [(e.event, e.reason) for e in events] == [("no_meta_task", "its retry is not stored")]


def test_an_invalid_reflection_is_not_learned_though_its_retry_is():
    rows, events, _ = rows_of(R3LSettings(), pair(), [reflection(0, status="invalid", reason="no JSON object")])
    assert [r.role for r in rows] == ["explore", "explore", "retry"]
    assert [(e.event, e.reason) for e in events] == [("no_meta_task", "invalid: no JSON object")]


@pytest.mark.parametrize(("of_base", "of_first"), [(0.5, 0.2), (0.2, 0.5)])
def test_a_retry_must_beat_both_the_base_and_what_was_reflected_on(of_base, of_first):
    """The second retry reflects on the first: .4 is above one of them and below the other."""
    episodes = [
        played(base(0, reward=of_base), ([1], [2])),
        played(distilled(0, reward=of_first), ([1], [3])),
        played(retry(1, reward=0.4, base_attempt=0, parent_id=distilled(0).trajectory_id), ([9], [4])),
    ]
    second = reflection(1, base_id=base(0).trajectory_id, target=distilled(0).trajectory_id)
    _, events, _ = rows_of(R3LSettings(), episodes, [second])
    assert {e.reason for e in events} == {"the retry's reward 0.4 is not above 0.5"}


def test_a_retry_of_a_retry_keeps_its_parents_turns():
    parent = played(distilled(0, reward=0.2, turns=3), ([1], [2]), ([3], [7]), ([8], [9]))
    lineage = {"base_attempt": 0, "parent_id": parent.trajectory.trajectory_id, "shared_turns": 1}
    second = played(retry(1, reward=1.0, pivot=2, **lineage), ([30], [31]), first=2)
    about = reflection(1, base_id=base(0).trajectory_id, target=parent.trajectory.trajectory_id)
    rows, _, _ = rows_of(R3LSettings(), [played(base(0), ([1], [2])), parent, second], [about])
    learned = next(r for r in rows if r.role == "retry")
    assert learned.token_ids == [1, 2, 3, 7, 30, 31]
    assert learned.weights == pytest.approx([0, 0, 0, 0, 0, 1 / 2])  # one token learned, a group of two


@pytest.mark.parametrize("kind", sorted(METHODS))
def test_every_objective_is_a_loss_and_gets_the_settings_it_takes(kind):
    method, settings = METHODS[kind], compose(method={"r3l": "paper"}.get(kind, kind)).method
    for objective in (
        method.objective(settings, base(0)),
        method.objective(settings, distilled(0)),
        method.lesson_objective(settings),
    ):
        loss = LOSSES[objective.name].loss
        taken = inspect.signature(loss).parameters.values()
        wanted = {one.name for one in taken if one.kind is inspect.Parameter.KEYWORD_ONLY}
        more = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken)  # what the search for bounds takes
        assert set(objective.settings) == wanted or (more and set(objective.settings) > wanted)
