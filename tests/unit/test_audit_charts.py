import itertools
import re
from xml.etree import ElementTree

import pytest

from r3l.audit.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    Series,
    bar,
    line_chart,
    nice_ticks,
    place_label,
    sparkline,
    tick_label,
    token_strip,
)


@pytest.mark.parametrize(("low", "high", "zero", "ticks"), [
    (0.2, 0.9, True, [0, 0.25, 0.5, 0.75, 1.0]), (-1.5, -0.5, True, [-1.5, -1.0, -0.5, 0]), (100, 112, False, [100, 104, 108, 112]),
    (0, 0, True, [0, 0.2, 0.4, 0.6]), (5, 5, False, [4.5, 5, 5.5]), (0, 31_000, True, [0, 10_000, 20_000, 30_000, 40_000]),
])  # fmt: skip
def test_ticks_are_round_and_take_in_the_range(low, high, zero, ticks):
    found = nice_ticks(low, high, zero)
    steps = {round(after - before, 9) for before, after in itertools.pairwise(found)}
    assert len(steps) == 1
    assert found[0] <= min(low, 0 if zero else low)
    assert found[-1] >= max(high, 0 if zero else high)
    assert 2 <= len(found) <= 7
    if low not in (100, 5, 0) or high == 31_000:
        assert found == pytest.approx(ticks)


def test_a_line_goes_where_its_values_are():
    svg = str(line_chart([Series("", [(0, 0.0), (1, 1.0), (2, 0.5)])], share=True))
    left, right, low, high = LEFT + 6, WIDTH - RIGHT - 6, HEIGHT - BOTTOM, TOP
    middle = (left + right) / 2
    assert f'd="M{left:.1f} {low:.1f} L{middle:.1f} {high:.1f} L{right:.1f} {(low + high) / 2:.1f}"'.replace(".0", "") in svg.replace(
        ".0", ""
    )


def test_a_missing_value_breaks_the_line_and_is_never_drawn_as_zero():
    svg = str(line_chart([Series("", [(0, 1.0), (1, 1.0), (2, None), (3, float("nan")), (4, 1.0), (5, 1.0)])]))
    assert len(re.findall(r'class="line c0"', svg)) == 2
    assert len(re.findall(r'class="dot c0"', svg)) == 4


def test_svg_is_well_formed_whatever_the_names_are():
    for svg in (line_chart([Series('<script>"&', [(0, 1.0), (1, 2.0)])], label='"><x'), line_chart([]),
                line_chart([Series("", [(3, 5.0)])]), sparkline([0.1, None, 0.4]), bar(0.5), bar(-0.4, signed=True),
                token_strip([0.0, 0.5, 0.5], [-0.1, -2.0, -0.3], -1.0, 0.5)):  # fmt: skip
        ElementTree.fromstring(str(svg))
    assert "<script" not in str(line_chart([Series("<script>", [(0, 1.0)])]))


def test_a_strip_has_one_block_per_run_of_equal_weights_raised_or_lowered():
    up = ElementTree.fromstring(str(token_strip([0.0, 0.5, 0.5, 0.25], [-1.0] * 4, 2.0, 1.0)))
    blocks = [(rect.get("class"), rect.get("x"), rect.get("width"), rect.get("height")) for rect in up.iter("rect")]
    assert blocks == [("up", "1", "2", "11.0"), ("up", "3", "1", "5.5")]
    down = ElementTree.fromstring(str(token_strip([0.5], [], -2.0, 1.0)))
    assert [(rect.get("class"), rect.get("y")) for rect in down.iter("rect")] == [("down", "12")]


def test_scale_and_bar():
    assert Scale(10, 20, 0, 100)(12.5) == 25.0
    assert Scale(3, 3, 0, 100)(3) == 0.0
    assert 'width="30.0"' in str(bar(0.25, width=120))
    assert 'x="36.0" width="24.0"' in str(bar(-0.4, width=120, signed=True))


def test_small_ticks_can_be_told_apart():
    assert [tick_label(value, 5e-5, False) for value in (0.0, 5e-5, 1e-4, 1.5e-4)] == ["0", "5e−5", "1e−4", "1.5e−4"]


def test_places_of_means_over_runs_are_rounded() -> None:
    assert [place_label(x) for x in (0, 9, 2.5, 740, 7740.67, 26168.4, 1_234_567.0)] == ["0", "9", "2.5", "740", "7741", "26.2k", "1.2346M"]
