"""The map of the gap against what unguided attempts win, by hand."""

import math
import re

import pytest

from r3l.lab.study.pages.map_picture import draw_map
from r3l.lab.study.phase_map import (
    PREDICTED,
    crossing,
    crossing_interval,
    dial,
    drawn_places,
    map_lines,
    map_section,
    places,
    policy_lines,
)

pytest.importorskip("scipy", reason="the extra [experiments] is not installed")
POLICIES = [f"data/policies/household-latent-{forgets}-{number}" for number in (0, 1, 2) for forgets in ("1", "0.8")]
P = {0: 0.0, 1: 0.2, 2: 0.0, 3: 0.1, 4: 0.0, 5: 0.3}
FINAL = {"R3L": [0.4, 0.5, 0.3, 0.4, 0.5, 0.3], "GRPO": [0.0, 0.6, 0.0, 0.5, 0.0, 0.7]}  # by seed
RESULTS = {
    "experiment": {"name": "phase", "sizes": {"laptop": {"model": "household", "policies": POLICIES}}},
    "size": "laptop",
    "test_episodes": 60,
    "cells": [{"run": f"{arm}{seed}", "arm": arm, "seed": seed, "rate": 1e-3} for arm in FINAL for seed in range(6)],
    "curves": {f"{arm}{seed}": {"-1": 0.0, "11": FINAL[arm][seed]} for arm in FINAL for seed in range(6)},
    "metrics": {},
    "policies": {f"{arm}{seed}": f"digest-{seed}" for arm in FINAL for seed in range(6)},
    "answers": [
        {
            "title": "What the starting policy wins: unguided",
            "rate": 1e-3,
            "rows": [{"seed": seed, "p": p} for seed, p in P.items()],
        },
        {
            "title": "Share of groups with mixed rewards in the first three iterations",
            "rate": 1e-3,
            "rows": [{"arm": arm, "seed": seed, "mixed": p * 2} for arm in FINAL for seed, p in P.items()],
        },
    ],
}


def test_the_dial_is_read_from_the_policies_names():
    assert dial(RESULTS) == {1.0: [0, 2, 4], 0.8: [1, 3, 5]}
    other = {"experiment": {"sizes": {"laptop": {"model": "embedded", "policies": []}}}}
    assert dial(RESULTS | other) == {}
    assert map_section(RESULTS | other, "x-laptop") == []


def test_a_point_of_the_map_has_its_gaps_and_their_mean():
    first, last = places(RESULTS, "GRPO", 1e-3)
    assert (first.forgets, first.p, first.mixed, first.gaps) == (1.0, 0.0, 0.0, {0: 0.4, 1: 0.3, 2: 0.5})
    assert first.over.mean == pytest.approx(0.4)
    assert (last.forgets, last.p, last.mixed) == (0.8, pytest.approx(0.2), pytest.approx(0.4))
    assert last.gaps == pytest.approx({0: -0.1, 1: -0.1, 2: -0.4})
    assert last.over.mean == pytest.approx(-0.2)
    assert last.area.mean == pytest.approx(-0.1)  # a straight line from 0
    assert places(RESULTS, "RAFT", 1e-3) == []


def test_the_crossing_is_where_the_straight_line_comes_down_to_zero():
    assert crossing([(0.2, -0.2), (0.0, 0.4)]) == pytest.approx(0.2 * 0.4 / 0.6)
    assert math.isnan(crossing([(0.0, 0.4), (0.2, 0.1)]))
    assert crossing([(0.0, -0.2), (0.0, 0.6), (0.2, -0.2)]) == pytest.approx(0.1)  # two points at 0: their mean, .2
    assert math.isnan(crossing([(0.0, -0.4), (0.2, 0.1)]))  # it comes up


def test_the_interval_is_over_policies_and_needs_three():
    found = places(RESULTS, "GRPO", 1e-3)
    low, high = crossing_interval(found)
    # one policy thrice: the least crossing is policy 2's, .2 x .5 / .9; the largest policy 0's, .2 x .4 / .5
    assert 0.2 * 0.5 / 0.9 - 1e-9 <= low < 0.2 * 0.4 / 0.6 < high <= 0.2 * 0.4 / 0.5 + 1e-9
    fewer = {policy: height for policy, height in found[0].gaps.items() if policy != 1}
    assert crossing_interval([found[0]._replace(gaps=fewer), found[1]]) is None  # two policies have both points


def test_without_the_question_for_what_a_policy_wins_there_is_a_table_and_no_map():
    text = "\n".join(map_section(RESULTS | {"answers": []}, "x-laptop"))
    assert "### Success after the last iteration" in text
    assert "R3L less" not in text
    assert "map.svg" not in text


def test_the_map_says_its_n():
    text = "\n".join(map_lines(RESULTS, 1e-3))
    assert "| 1 | 0.000 | 0.000 | +0.400 [" in text
    assert "| 0.8 | 2 | digest-5 (0.001) |" in map_section(RESULTS, "x-laptop")
    assert "Crossing: p = 0.133, 95 % bootstrap over policies " in text
    assert "| R3L | 0.400 (0.300 to 0.500; 3) | 0.400 (0.300 to 0.500; 3) |" in map_section(RESULTS, "x-laptop")
    assert "| GRPO | 0.000 (0.000 to 0.000; 3) | 0.600 (0.500 to 0.700; 3) |" in map_section(RESULTS, "x-laptop")
    drawn = draw_map(drawn_places(RESULTS), "GRPO", "Gap", PREDICTED["phase"])
    assert "Gap (n = 3 starting policies a point)" in drawn
    assert "crossing, as predicted" in drawn
    assert not {"#ffffff", "#000000"} & set(
        re.findall("#[0-9a-f]{6}", drawn)
    )  # reads on a white page and on a dark one


def test_the_picture_has_a_row_for_each_learning_rate_with_two_points():
    def at(rate, seeds):
        cells = [
            one | {"run": f"{one['run']}-{rate}", "rate": rate} for one in RESULTS["cells"] if one["seed"] in seeds
        ]
        curves = {f"{run}-{rate}": curve for run, curve in RESULTS["curves"].items()}
        return {"cells": cells, "curves": curves, "answers": [one | {"rate": rate} for one in RESULTS["answers"]]}

    both, one_point = at(3e-4, range(6)), at(1e-4, (0, 2, 4))
    added = {name: RESULTS[name] + both[name] + one_point[name] for name in ("cells", "answers")}
    mapped = drawn_places(RESULTS | added | {"curves": RESULTS["curves"] | both["curves"] | one_point["curves"]})
    assert list(mapped) == [1e-3, 3e-4]
    drawn = draw_map(mapped, "GRPO", "Gap", PREDICTED["phase"])
    assert "learning rate 0.001" in drawn
    assert "learning rate 0.0003" in drawn
    assert "0.0001" not in drawn
    assert drawn.count(">share of unguided attempts that win (p)<") == 1  # under the last row alone


def test_policies_that_were_made_anew_for_another_learning_rate_are_told_apart():
    run = {"run": "again", "arm": "R3L", "seed": 5, "rate": 3e-4}
    again = RESULTS | {"cells": [*RESULTS["cells"], run], "policies": RESULTS["policies"] | {"again": "a-digest"}}
    assert "| 0.8 | 2 | a-digest (0.0003), digest-5 (0.001) |" in policy_lines(again)


def test_an_experiment_at_the_models_own_rate_has_a_map_that_names_no_rate():
    cells = [cell | {"rate": None} for cell in RESULTS["cells"]]
    text = map_section(RESULTS | {"cells": cells, "answers": [one | {"rate": None} for one in RESULTS["answers"]]}, "x")
    assert "### R3L less GRPO" in text
    assert "| 0.8 | 2 | digest-5 |" in text
    assert not [line for line in text if "learning rate" in line and line.startswith("#")]
