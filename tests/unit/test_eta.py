"""Speed and time left, worked out by hand."""

import pytest

from flows.cli.screen.eta import expected_attempts, seconds_left, tokens_per_second
from r3l.config import compose

# 2 shards of 8 bases each; half of the bases are done after 10 s, at 100 tokens each.
HALF = {
    "shards": {"planned": 2.0},
    "base": {"began": 100.0, "planned": 16.0, "done": 8.0, "tokens": 800.0, "done_tokens": 800.0, "shards": 1.0},
    "engine": {"began": 90.0, "done": 1.0},
}
PLANNED = {"base": 16.0, "reflections": 16.0, "retries": 16.0}


def test_what_one_iteration_samples():
    assert expected_attempts(compose(assignments=["rollout.tasks=8", "rollout.group_size=8"])) == {
        "base": 32,
        "reflections": 32,
        "retries": 32,
        "continuations": 0,
    }
    assert expected_attempts(compose(method="grpo", assignments=["rollout.tasks=8", "rollout.group_size=8"])) == {
        "base": 64,
        "reflections": 0,
        "retries": 0,
        "continuations": 0,
    }
    assert expected_attempts(compose(method="vineppo", assignments=["rollout.tasks=8", "rollout.group_size=8"])) == {
        "base": 64,
        "reflections": 0,
        "retries": 0,
        "continuations": 64 * 3 * 3,
    }


def test_speed_counts_from_the_first_sampled_token():
    assert tokens_per_second(HALF, 110.0) == pytest.approx(80.0)
    assert tokens_per_second({"engine": {"began": 90.0}}, 110.0) == 0.0


def test_time_left_by_tokens():
    # 8 bases, 16 reflections and 16 retries of 100 tokens at 80 tokens/s
    assert seconds_left(HALF, PLANNED, 110.0) == pytest.approx(40 * 100 / 80)
    # reflections turn out at 20 tokens; one shard ended after 3 retries, so half of the retries' work is done
    later = HALF | {
        "reflections": {"began": 105.0, "done": 8.0, "tokens": 160.0, "done_tokens": 160.0, "shards": 1.0},
        "retries": {"began": 108.0, "done": 3.0, "tokens": 240.0, "done_tokens": 240.0, "shards": 1.0},
    }
    assert seconds_left(later, PLANNED, 112.0) == pytest.approx((8 * 100 + 8 * 20 + 8 * 80) / 100)


def test_what_attempts_under_way_have_sampled_is_not_sampled_again():
    # 2 of 16 bases done at 150 tokens; the other 14 have 1,300 of their 2,100; 16 reflections and 16 retries of 150;
    # 160 tokens/s
    begun = {"base": {"began": 100.0, "done": 2.0, "tokens": 1600.0, "done_tokens": 300.0}}
    assert seconds_left(begun, PLANNED, 110.0) == pytest.approx((800 + 32 * 150) / 160)
    # they have had more than the two took: no debt is carried over to the stages to come
    begun["base"]["tokens"] = 3200.0
    assert seconds_left(begun, PLANNED, 110.0) == pytest.approx(32 * 150 / 320)


def test_no_guess_before_a_tenth_of_the_bases_is_done():
    early = {"base": {"began": 100.0, "done": 1.0, "tokens": 100.0}}
    assert seconds_left(early, PLANNED, 110.0) is None
    assert seconds_left({}, {}, 110.0) is None


def test_a_finished_stage_leaves_nothing():
    done = {"evaluations": {"began": 100.0, "done": 12.0, "tokens": 1200.0, "done_tokens": 1200.0}}
    assert seconds_left(done, {"evaluations": 12.0}, 110.0) == 0.0
