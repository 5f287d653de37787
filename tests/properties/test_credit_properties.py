"""What must hold for any group of rewards and any pivots."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from r3l.config.compose import compose
from r3l.config.methods import R3LSettings
from r3l.config.methods.taught import TaughtSettings
from r3l.credit.advantages import scaled_advantages
from r3l.methods import METHODS, credit_stage, training_rows_stage
from tests.support.exploration_group import base, distilled, played

rewards = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=8)
scales = st.sampled_from(["std", "none"])
SHIFT_FREE = [
    "paper", "r3l_without_positive", "grpo", "opmd", "gspo", "dapo", "grpo_pa", "opmd_pa", "reflect_grpo", "rloo",
]  # fmt: skip
quick = checks(deadline=None, max_examples=40)
PRESETS = [*SHIFT_FREE, "raft", "released", "critique_grpo"]


def advantages(preset, values):
    credit, _ = credit_stage(
        compose(method=preset).method, [base(n, reward=float(value)) for n, value in enumerate(values)]
    )
    return [one.advantage for one in credit]


@quick
@given(rewards, scales, st.floats(-10, 10))
def test_a_shift_of_all_rewards_changes_no_advantage(values, scale, shift):
    moved = np.array(values) + shift
    assume(len(set(values)) == len(set(moved)))  # a shift that rounds two rewards into one is no shift
    assert scaled_advantages(moved, scale) == pytest.approx(scaled_advantages(values, scale), abs=1e-6)


@pytest.mark.parametrize("preset", SHIFT_FREE)
@quick
@given(values=rewards, shift=st.sampled_from([-1.0, 0.5, 2.0]))
def test_no_method_but_those_with_a_threshold_sees_a_shift(preset, values, shift):
    assert advantages(preset, [value + shift for value in values]) == pytest.approx(
        advantages(preset, values), abs=1e-5
    )


@quick
@given(rewards)
def test_advantages_sum_to_zero_before_amplification(values):
    assert scaled_advantages(values, "std").sum() == pytest.approx(0, abs=1e-9)


@quick
@given(rewards, st.sampled_from(["grpo_pa", "opmd_pa"]))
def test_amplified_is_no_less_than_plain_for_positives_and_equal_for_the_rest(values, preset):
    plain, amplified = advantages(preset.removesuffix("_pa"), values), advantages(preset, values)
    assert all(b >= a if a > 0 else b == a for a, b in zip(plain, amplified, strict=True))


@pytest.mark.parametrize("preset", PRESETS)
@quick
@given(values=rewards, seed=st.integers(0, 1000))
def test_the_order_of_members_does_not_matter(preset, values, seed):
    order = np.random.default_rng(seed).permutation(len(values))
    shuffled = advantages(preset, [values[i] for i in order])
    assert shuffled == pytest.approx([advantages(preset, values)[i] for i in order], abs=1e-9)


@st.composite
def groups(draw):
    """Bases of 1 to 5 turns of 1 to 3 tokens, some with a distilled retry; every token id is drawn once."""
    next_id = iter(range(1, 10_000))
    episodes = []
    for attempt in range(draw(st.integers(1, 3))):
        turns = [
            ([next(next_id)], [next(next_id) for _ in range(draw(st.integers(1, 3)))])
            for _ in range(draw(st.integers(1, 5)))
        ]
        episodes.append(played(base(attempt, reward=draw(st.sampled_from([0.0, 0.5, 1.0]))), *turns))
        if draw(st.booleans()):
            pivot = draw(st.integers(0, len(turns) - 1))
            suffix = [
                (turns[pivot][0], [next(next_id)]),
                *([([next(next_id)], [next(next_id)])] * draw(st.integers(0, 2))),
            ]
            episodes.append(
                played(
                    distilled(attempt, pivot=pivot, reward=draw(st.sampled_from([0.0, 1.0]))), *turns[:pivot], *suffix
                )
            )
    return episodes


@quick
@given(
    groups(),
    st.sampled_from(["both", "retry_only", "off"]),
    st.sampled_from(["trajectory", "trajectory_unmasked", "token"]),
)
def test_weight_is_zero_off_sampled_tokens_and_before_the_pivot(episodes, mask, normalisation):
    settings = R3LSettings(
        pivot_mask=mask, loss_normalisation=normalisation, kl_coefficient=0.1
    )  # KL: every member has a row
    credit, _ = credit_stage(settings, [one.trajectory for one in episodes])
    rows, events = training_rows_stage(settings, episodes, [], credit)
    assert len(rows) + len(events) == len(credit) == len(episodes)
    pivots = {
        one.trajectory.base_id: one.trajectory.pivot_turn for one in episodes if one.trajectory.kind == "distilled"
    }
    for row, episode in zip(rows, episodes, strict=True):
        own = {t for turn in episode.turns for t in turn.response_ids}
        kind, member = episode.trajectory.kind, episode.trajectory.trajectory_id
        shared = episode.trajectory.pivot_turn if kind == "distilled" else pivots.get(member, 0)
        masked_turns = {"both": shared, "retry_only": shared if kind == "distilled" else 0, "off": 0}[mask]
        masked = {t for turn in episode.turns[:masked_turns] for t in turn.response_ids}
        trained = {t for t, w in zip(row.token_ids, row.weights, strict=True) if w > 0}
        assert trained == own - masked
        assert all(w >= 0 for w in row.weights)
        assert row.token_ids == [t for turn in episode.turns for t in (*turn.context_ids, *turn.response_ids)]
        assert row.trained_tokens == sum(w > 0 for w in row.weights)
        assert len(row.logprobs) == len(row.token_ids)


@pytest.mark.parametrize("kind", sorted(METHODS))
@quick
@given(episodes=groups())
def test_no_method_reads_another_members_tokens(kind, episodes):
    """A row holds its own member's ids only, and none of them where another member's replies are replaced."""
    settings = compose(method={"r3l": "paper"}.get(kind, kind)).method
    turns = [turn for one in episodes for turn in one.turns]
    credit, _ = credit_stage(settings, [one.trajectory for one in episodes], turns)
    rows, _ = training_rows_stage(settings, episodes, [], credit)
    whole = {
        one.trajectory.trajectory_id: [t for turn in one.turns for t in (*turn.context_ids, *turn.response_ids)]
        for one in episodes
    }
    assert all(row.token_ids == whole[row.source_id] for row in rows)
    if isinstance(settings, TaughtSettings):
        return  # its teacher reads another member's success
    alone = {
        row.source_id: training_rows_stage(
            settings,
            [one for one in episodes if one.trajectory.trajectory_id == row.source_id],
            [],
            [one for one in credit if one.trajectory_id == row.source_id],
        )[0]
        for row in rows
    }
    assert all(alone[row.source_id] == [row] for row in rows)


@quick
@given(groups())
def test_the_weights_of_a_group_are_a_mean_over_its_members(episodes):
    """Without a mask, each member's weights sum to 1/G: the mean over the group of the mean over its tokens."""
    settings = R3LSettings(pivot_mask="off", kl_coefficient=0.1)
    credit, _ = credit_stage(settings, [one.trajectory for one in episodes])
    rows, _ = training_rows_stage(settings, episodes, [], credit)
    assert [sum(row.weights) for row in rows] == pytest.approx([1 / len(episodes)] * len(episodes))
