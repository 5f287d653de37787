"""Charts as SVG. Colours are classes of the style sheet, so that light and dark, screen and report share them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

from r3l.audit.figures import absent, number, percent

WIDTH, HEIGHT = 320, 196
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 24, 36
HOVERS, DOTS = 80, 40  # points that answer the mouse; lines with more than DOTS points are drawn without dots
COLOURS = 6


@dataclass(frozen=True, slots=True)
class Series:
    """A name and its points (x, y); y None where there is none, which breaks the line. `intervals`: (x, low, high)."""

    name: str
    points: Sequence[tuple[float, float | None]]
    intervals: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """A mapping from a range of values to a range of pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start), 1)


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a chart: `unit` of y, a title of x; `share`: 0 to 100 %."""

    unit: str = ""
    below: str = "iteration"
    share: bool = False


def line_chart(
    series: Sequence[Series],
    axes: Axes = Axes(),
    label: str = "",
    hover: bool = True,
    link: Callable[[float], str] | None = None,
) -> Markup:
    """Draw lines over whole numbers. `hover`: values under the mouse; `link`: where a click on a point leads."""
    lines = [
        Series(one.name, [(x, None if absent(y) or math.isinf(y or 0.0) else y) for x, y in one.points], one.intervals)
        for one in series
    ]
    values = [y for one in lines for _, y in one.points if y is not None]
    if not values:
        return canvas(
            "chart", WIDTH, HEIGHT, f'<text class="none" x="{WIDTH / 2}" y="{HEIGHT / 2}">no value</text>', label
        )
    values += [edge for one in lines for _, *edges in one.intervals for edge in edges if math.isfinite(edge)]
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0] if axes.share else nice_ticks(min(values), max(values))
    xs = sorted({x for one in lines for x, _ in one.points})
    scale_x = (
        Scale(xs[0], xs[-1], LEFT + 6, WIDTH - RIGHT - 6)
        if len(xs) > 1
        else Scale(xs[0] - 1, xs[0] + 1, LEFT, WIDTH - RIGHT)
    )
    scale_y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    as_text = percent if axes.share else lambda value: number(value, 3 if abs(ticks[-1] - ticks[0]) < 1 else 2)
    parts = [frame(ticks, xs, scale_x, scale_y, axes.share), titles(axes)]
    parts += [whiskers(one.intervals, scale_x, scale_y, place % COLOURS) for place, one in enumerate(lines)]
    parts += [path(one.points, scale_x, scale_y, place % COLOURS) for place, one in enumerate(lines)]
    parts += hovers(lines, xs, scale_x, scale_y, as_text, link, axes.below) if hover else []
    return canvas(
        "chart", WIDTH, HEIGHT, "".join(parts), spoken_label(label, lines, as_text), "group" if link else "img"
    )


def titles(axes: Axes) -> str:
    """Write what the axes show, in words."""
    return (
        f'<text class="title y" x="4" y="12">{escape(axes.unit)}</text>'
        f'<text class="title x" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}">{escape(axes.below)}</text>'
    )


def spoken_label(label: str, series: Sequence[Series], shown: Callable[[Any], str]) -> str:
    """Describe the chart for who hears the page: its title, and where each line begins and ends."""
    phrases = []
    for one in series:
        points = [(x, y) for x, y in one.points if y is not None]
        if points:
            (first, low), (last, high) = points[0], points[-1]
            phrases.append(f"{one.name} {shown(low)} at {first:g}, {shown(high)} at {last:g}".strip())
    return ": ".join(filter(None, (label, "; ".join(phrases))))


def whiskers(intervals: Sequence[tuple[float, float, float]], scale_x: Scale, scale_y: Scale, colour: int) -> str:
    """Draw an interval at each point, as a bar with ends."""
    parts = []
    for x, low, high in intervals:
        at, below, above = scale_x(x), scale_y(low), scale_y(high)
        ends = f"M{at - 3:.1f} {below} H{at + 3:.1f} M{at - 3:.1f} {above} H{at + 3:.1f} M{at} {below} V{above}"
        parts.append(f'<path class="whisker c{colour}" d="{ends}"/>')
    return "".join(parts)


def canvas(css: str, width: int, height: int, inner: str, label: str = "", role: str = "img") -> Markup:
    """Wrap an SVG of its own size, but a chart, which fills its place. Without a label it is an ornament to whoever
    hears the page."""
    size = "" if css == "chart" else f' width="{width}" height="{height}"'
    accessible = f' role="{role}" aria-label="{escape(label)}"' if label else ' aria-hidden="true"'
    return Markup(f'<svg class="{css}" viewBox="0 0 {width} {height}"{size}{accessible}>{inner}</svg>')


def nice_ticks(low: float, high: float) -> list[float]:
    """Choose four or so round values that take in the range and 0."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-12:
        high = low + 0.5
    step = 10 ** math.floor(math.log10((high - low) / 3))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (step * factor) <= 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(tick * step, 12) for tick in range(first, last + 1)]


def tick_label(value: float, step: float, share: bool) -> str:
    if share:
        return f"{100 * value:.0f} %"
    if abs(value) >= 10_000:
        return f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value / 1e3:g}k"
    if step >= 1e-3 or value == 0:
        return f"{value:g}".replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}".replace("-", "−")


def whole_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Choose regular places along x, each a multiple of one round step; the only place where there is one."""
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / most))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= most)
    step = max(1.0, step)
    return [tick * step for tick in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def place_label(x: float) -> str:
    """Write an iteration as it is; thousands of turns or tokens in three places or so."""
    if abs(x) >= 10_000:
        x = round(x, -2)
    elif abs(x) >= 100:
        x = round(x)
    return tick_label(x, 1, False)


def frame(ticks: Sequence[float], xs: Sequence[float], scale_x: Scale, scale_y: Scale, share: bool) -> str:
    """Draw grid lines with their values, and regular places along x."""
    parts = []
    for tick in ticks:
        y = scale_y(tick)
        css = "axis" if tick == 0 else "grid"
        parts.append(f'<line class="{css}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="tick y" x="{LEFT - 6}" y="{y + 3.5}">{tick_label(tick, ticks[1] - ticks[0], share)}</text>'
        )
    base = scale_y(ticks[0])
    for x in whole_ticks(xs[0], xs[-1]):
        at = scale_x(x)
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{base}" y2="{base + 4}"/>')
        parts.append(f'<text class="tick x" x="{at}" y="{base + 15}">{place_label(x)}</text>')
    return "".join(parts)


def path(points: Sequence[tuple[float, float | None]], scale_x: Scale, scale_y: Scale, colour: int) -> str:
    """Draw a line, broken where there is no value; dots while they can be told apart, and for a point that stands
    alone."""
    runs = [
        [(scale_x(x), scale_y(y)) for x, y in run if y is not None]
        for there, run in groupby(points, lambda p: p[1] is not None)
        if there
    ]
    lines = "".join(
        f'<path class="line c{colour}" d="M{" L".join(f"{x} {y}" for x, y in run)}"/>' for run in runs if len(run) > 1
    )
    dots = [point for run in runs for point in run if len(points) <= DOTS or len(run) == 1]
    return lines + "".join(f'<circle class="dot c{colour}" cx="{x}" cy="{y}" r="2.6"/>' for x, y in dots)


def hovers(
    series: Sequence[Series],
    xs: Sequence[float],
    scale_x: Scale,
    scale_y: Scale,
    shown: Callable[[Any], str],
    link: Callable[[float], str] | None,
    below: str,
) -> list[str]:
    """Draw a strip per x (at most HOVERS) that shows a rule and the values there while the mouse is over it."""
    places = xs[:: max(1, math.ceil(len(xs) / HOVERS))]
    lookup = [dict(one.points) for one in series]
    edges = [{x: (low, high) for x, low, high in one.intervals} for one in series]
    parts = []
    for place, x in enumerate(places):
        at = scale_x(x)
        left = LEFT if place == 0 else (at + scale_x(places[place - 1])) / 2
        right = WIDTH - RIGHT if place == len(places) - 1 else (at + scale_x(places[place + 1])) / 2
        rows = []
        for colour, (one, y_at, bounds) in enumerate(zip(series, lookup, edges, strict=True)):
            if y_at.get(x) is not None:
                between = f" [{shown(bounds[x][0])}–{shown(bounds[x][1])}]" if x in bounds else ""
                rows.append((colour, f"{one.name} {shown(y_at[x])}{between}".strip()))
        strip = (
            f'<rect class="hit" x="{left:.1f}" y="0" width="{right - left:.1f}" height="{HEIGHT}"/>'
            f'<line class="rule" x1="{at}" x2="{at}" y1="{TOP}" '
            f'y2="{HEIGHT - BOTTOM}"/>{tooltip(f"{below} {x:g}", rows, at)}'
        )
        label = f"{below} {x:g}: {'; '.join(text for _, text in rows)}"
        # The table of iterations has the same links for who uses the keyboard.
        parts.append(
            f'<a class="at" href="{escape(link(x))}" tabindex="-1" aria-label="{escape(label)}">{strip}</a>'
            if link
            else f'<g class="at">{strip}</g>'
        )
    return parts


def tooltip(head: str, rows: Sequence[tuple[int, str]], at: float) -> str:
    """Draw a box with the values of each line at x."""
    width = 30 + 6.2 * max([len(head), *(len(text) for _, text in rows)])
    left = max(2.0, at + 8 if at + 8 + width < WIDTH else at - 8 - width)
    texts = "".join(
        f'<rect class="swatch c{colour % COLOURS}" x="{left + 8:.1f}" y="{TOP + 24 + 15 * place}" width="8" '
        'height="8"/>'
        f'<text class="tip" x="{left + 21:.1f}" y="{TOP + 32 + 15 * place}">{escape(text)}</text>'
        for place, (colour, text) in enumerate(rows)
    )
    return (
        f'<rect class="box" x="{left:.1f}" y="{TOP + 2}" width="{width:.1f}" height="{24 + 15 * len(rows)}" rx="4"/>'
        f'<text class="tip head" x="{left + 8:.1f}" y="{TOP + 17}">{escape(head)}</text>{texts}'
    )
