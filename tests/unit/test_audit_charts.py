import itertools
import re
from xml.etree import ElementTree

import pytest

from r3l.audit.charts.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axes,
    Scale,
    Series,
    line_chart,
    nice_ticks,
    place_label,
    tick_label,
    whole_ticks,
)
from r3l.audit.charts.strips import bar, sparkline, token_strip


@pytest.mark.parametrize(("low", "high", "ticks"), [
    (0.2, 0.9, [0, 0.25, 0.5, 0.75, 1.0]),
    (-1.5, -0.5, [-1.5, -1.0, -0.5, 0]),
    (0, 0, [0, 0.2, 0.4, 0.6]),
    (0, 31_000, [0, 10_000, 20_000, 30_000, 40_000]),
])  # fmt: skip
def test_ticks_are_round_and_take_in_the_range(low, high, ticks):
    found = nice_ticks(low, high)
    steps = {round(after - before, 9) for before, after in itertools.pairwise(found)}
    assert len(steps) == 1
    assert found[0] <= min(low, 0)
    assert found[-1] >= max(high, 0)
    assert 2 <= len(found) <= 7
    if low != 0 or high == 31_000:
        assert found == pytest.approx(ticks)


def test_a_line_goes_where_its_values_are():
    svg = str(line_chart([Series("", [(0, 0.0), (1, 1.0), (2, 0.5)])], Axes(share=True)))
    left, right, low, high = LEFT + 6, WIDTH - RIGHT - 6, HEIGHT - BOTTOM, TOP
    middle = (left + right) / 2
    assert f'd="M{left:.1f} {low:.1f} L{middle:.1f} {high:.1f} L{right:.1f} {(low + high) / 2:.1f}"'.replace(
        ".0", ""
    ) in svg.replace(".0", "")


def test_a_missing_value_breaks_the_line_and_is_never_drawn_as_zero():
    svg = str(line_chart([Series("", [(0, 1.0), (1, 1.0), (2, None), (3, float("nan")), (4, 1.0), (5, 1.0)])]))
    assert len(re.findall(r'class="line c0"', svg)) == 2
    assert len(re.findall(r'class="dot c0"', svg)) == 4


def test_svg_is_well_formed_whatever_the_names_are():
    for svg in (
        line_chart([Series('<script>"&', [(0, 1.0), (1, 2.0)])], label='"><x'),
        line_chart([]),
        line_chart([Series("", [(3, 5.0)])]),
        sparkline([0.1, None, 0.4]),
        bar(0.5),
        bar(-0.4, signed=True),
        token_strip([0.0, 0.5, 0.5], [-0.1, -2.0, -0.3], -1.0, 0.5),
    ):
        ElementTree.fromstring(str(svg))
    assert "<script" not in str(line_chart([Series("<script>", [(0, 1.0)])]))


def test_a_strip_has_one_block_per_run_of_equal_weights_raised_or_lowered():
    up = ElementTree.fromstring(str(token_strip([0.0, 0.5, 0.5, 0.25], [-1.0] * 4, 2.0, 1.0)))
    blocks = [(rect.get("class"), rect.get("x"), rect.get("width"), rect.get("height")) for rect in up.iter("rect")]
    assert blocks == [("up", "1", "2", "11.0"), ("up", "3", "1", "5.5")]
    down = ElementTree.fromstring(str(token_strip([0.5], [], -2.0, 1.0)))
    assert [(rect.get("class"), rect.get("y")) for rect in down.iter("rect")] == [("down", "12")]


def test_scales_and_bars_have_the_expected_widths():
    assert Scale(10, 20, 0, 100)(12.5) == 25.0
    assert Scale(3, 3, 0, 100)(3) == 0.0
    assert 'width="30.0"' in str(bar(0.25, width=120))
    assert 'x="36.0" width="24.0"' in str(bar(-0.4, width=120, signed=True))


def test_small_ticks_can_be_told_apart():
    assert [tick_label(value, 5e-5, False) for value in (0.0, 5e-5, 1e-4, 1.5e-4)] == ["0", "5e−5", "1e−4", "1.5e−4"]


def test_places_of_means_over_runs_are_rounded() -> None:
    assert [place_label(x) for x in (0, 9, 2.5, 740, 7740.67, 26168.4, 1_234_567.0)] == [
        "0", "9", "2.5", "740", "7741", "26.2k", "1.2346M",
    ]  # fmt: skip


@pytest.mark.parametrize(("low", "high", "ticks"), [
    (0, 1, [0, 1]), (0, 5, [0, 1, 2, 3, 4, 5]), (-1, 4, [-1, 0, 1, 2, 3, 4]), (3, 3, [3]),
    (0, 12, [0, 2, 4, 6, 8, 10, 12]), (0, 129, [0, 50, 100]), (740, 26_168, [5000, 10_000, 15_000, 20_000, 25_000]),
])  # fmt: skip
def test_places_along_x_are_regular(low, high, ticks) -> None:
    assert whole_ticks(low, high) == ticks


def test_an_interval_is_a_bar_from_its_low_to_its_high_end_and_is_told():
    one = Series("held-out", [(0, 0.5), (1, 0.75)], [(0, 0.25, 0.75), (1, 0.5, 1.0)])
    svg = str(line_chart([one], Axes("share", share=True), "Success", link=lambda x: f"/run/a?at={x:g}"))
    low, high = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * 0.25, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * 0.75
    assert f"M{LEFT + 6}.0 {low} V{high}" in svg.replace(f"M{LEFT + 6} ", f"M{LEFT + 6}.0 ")
    assert "held-out 75.0 % [50.0 %–100 %]" in svg
    assert 'aria-label="Success: held-out 50.0 % at 0, 75.0 % at 1"' in svg
    assert re.findall('href="([^"]*)"', svg) == ["/run/a?at=0", "/run/a?at=1"]
    assert ">share</text>" in svg
    assert ">iteration</text>" in svg
