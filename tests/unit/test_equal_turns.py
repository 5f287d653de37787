"""Arms at equal turns, worked out by hand."""

import math

import pytest

from r3l.lab.study.pages.equal_turns import arms_at_turns, equal_turns_section, holm

pytest.importorskip("scipy", reason="the extra [experiments] is not installed")
POLICIES = [f"data/policies/household-latent-{forgets}-{number}" for number in (0, 1) for forgets in ("1", "0.8")]
# By arm and seed: turns of each of two iterations, and success at the start and after them.
RUNS = {
    ("GRPO", 0): (100, [0.0, 0.2, 0.2]),
    ("R3L", 0): (50, [0.0, 0.5, 0.6]),
    ("GRPO", 2): (100, [0.0, 0.0, 0.1]),
    ("R3L", 2): (50, [0.0, 0.3, 0.3]),
    ("R3L", 1): (50, [0.1, 0.1, 0.1]),  # without the rival
}


@pytest.fixture
def results():
    return {
        "experiment": {
            "name": "x",
            "against": "GRPO",
            "sizes": {"laptop": {"model": "household", "policies": POLICIES}},
        },
        "size": "laptop",
        "test_episodes": 100,
        "cells": [{"run": f"{arm}{seed}", "arm": arm, "seed": seed, "rate": 1e-3} for arm, seed in RUNS],
        "metrics": {
            f"{arm}{seed}": [
                {"iteration": at, "episodes": 1, "turns": turns, "tokens": 20 * turns, "seconds": turns / 10}
                for at in (0, 1)
            ]
            for (arm, seed), (turns, _) in RUNS.items()
        },
        "curves": {
            f"{arm}{seed}": dict(zip(("-1", "0", "1"), points, strict=True))
            for (arm, seed), (_, points) in RUNS.items()
        },
    }


def test_each_policy_is_read_at_what_its_thriftiest_arm_sampled(results):
    least, found = arms_at_turns(results, "GRPO", 1e-3, [0, 2])
    assert least == {0: 100, 2: 100}  # two iterations of R3L
    ours, theirs = found
    assert (ours.arm, theirs.arm, theirs.over) == ("R3L", "GRPO", None)
    assert ours.success == {0: 0.6, 2: 0.3}
    assert theirs.success == {0: 0.2, 2: 0.0}  # after one iteration
    assert ours.over.mean == pytest.approx((0.4 + 0.3) / 2)
    # trapezes until 100 turns: R3L .5 x (0 + .5)/2 + .5 x (.5 + .6)/2, and .075 + .15
    assert ours.area == pytest.approx({0: 0.4, 2: 0.225})
    assert theirs.area == pytest.approx({0: 0.1, 2: 0.0})


def test_the_page_has_a_table_for_each_point_that_the_rival_was_run_at(results):
    text = "\n".join(equal_turns_section(results))
    assert "### F = 1, learning rate 0.001, at 100 turns in the mean of the policies" in text
    assert "F = 0.8" not in text
    assert "| R3L | 0.450 | 0.312 | +0.350 [" in text
    assert "| 2 | 100, 2000, 10 |" in text  # policies; two iterations of 50 turns, 1,000 tokens and 5 s
    results["experiment"]["against"] = "RAFT"
    assert equal_turns_section(results) == []


def test_holm_multiplies_the_smallest_p_by_all_and_never_falls():
    assert holm([0.01, math.nan, 0.04, 0.03]) == pytest.approx([0.03, math.nan, 0.06, 0.06], nan_ok=True)
    assert holm([0.6, 0.7]) == [1.0, 1.0]
