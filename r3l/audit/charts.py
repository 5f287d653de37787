"""Charts as SVG, drawn here: colours are classes of the style sheet, so that light and dark, screen and report share them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

from r3l.audit.figures import absent, number, percent

WIDTH, HEIGHT = 320, 170
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 24
HOVERS, DOTS = 80, 40  # points that answer the mouse; lines with more than DOTS points are drawn without dots
COLOURS = 6


@dataclass(frozen=True, slots=True)
class Series:
    """A name and its points (x, y); y None where there is none, which breaks the line."""

    name: str
    points: Sequence[tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Scale:
    """From a range of values to a range of pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start), 1)


def line_chart(series: Sequence[Series], *, share: bool = False, zero: bool = True, label: str = "",
               hover: bool = True) -> Markup:
    """Lines over whole numbers. `share`: 0 to 100 %; `zero`: the axis takes in 0; `hover`: values under the mouse."""
    drawn = [Series(one.name, [point for point in one.points if not (point[1] is not None and absent(point[1]))]) for one in series]
    values = [y for one in drawn for _, y in one.points if y is not None]
    if not values:
        return canvas("chart", WIDTH, HEIGHT, f'<text class="none" x="{WIDTH / 2}" y="{HEIGHT / 2}">none yet</text>', label)
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0] if share else nice_ticks(min(values), max(values), zero)
    xs = sorted({x for one in drawn for x, _ in one.points})
    scale_x = Scale(xs[0], xs[-1], LEFT + 6, WIDTH - RIGHT - 6) if len(xs) > 1 else Scale(xs[0] - 1, xs[0] + 1, LEFT, WIDTH - RIGHT)
    scale_y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    shown = percent if share else lambda value: number(value, 3 if abs(ticks[-1] - ticks[0]) < 1 else 2)
    parts = [frame(ticks, xs, scale_x, scale_y, share)]
    parts += [path(one.points, scale_x, scale_y, place % COLOURS) for place, one in enumerate(drawn)]
    parts += hovers(drawn, xs, scale_x, scale_y, shown) if hover else []
    return canvas("chart", WIDTH, HEIGHT, "".join(parts), label)


def canvas(css: str, width: int, height: int, inner: str, label: str = "") -> Markup:
    """An SVG of its own size, but a chart, which fills its place. Without a label it is an ornament to whoever hears the page."""
    size = "" if css == "chart" else f' width="{width}" height="{height}"'
    told = f' role="img" aria-label="{escape(label)}"' if label else ' aria-hidden="true"'
    return Markup(f'<svg class="{css}" viewBox="0 0 {width} {height}"{size}{told}>{inner}</svg>')


def nice_ticks(low: float, high: float, zero: bool) -> list[float]:
    """Four or so round values that take in the range."""
    low, high = (min(low, 0.0), max(high, 0.0)) if zero else (low, high)
    if high - low < 1e-12:
        low, high = low - (0.0 if zero and low == 0 else 0.5), high + 0.5
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


def place_label(x: float) -> str:
    """An iteration as it is; thousands of turns or tokens in three places or so."""
    return tick_label(round(x, -2) if abs(x) >= 10_000 else round(x) if abs(x) >= 100 else x, 1, False)


def frame(ticks: Sequence[float], xs: Sequence[float], scale_x: Scale, scale_y: Scale, share: bool) -> str:
    """Grid lines with their values, and the first, middle and last x."""
    parts = []
    for tick in ticks:
        y = scale_y(tick)
        css = "axis" if tick == 0 else "grid"
        parts.append(f'<line class="{css}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick y" x="{LEFT - 6}" y="{y + 3.5}">{tick_label(tick, ticks[1] - ticks[0], share)}</text>')
    for x in dict.fromkeys([xs[0], xs[len(xs) // 2], xs[-1]]):
        parts.append(f'<text class="tick x" x="{scale_x(x)}" y="{HEIGHT - 7}">{place_label(x)}</text>')
    return "".join(parts)


def path(points: Sequence[tuple[float, float | None]], scale_x: Scale, scale_y: Scale, colour: int) -> str:
    """A line, broken where there is no value; dots while they can be told apart, and for a point that stands alone."""
    runs = [
        [(scale_x(x), scale_y(y)) for x, y in run if y is not None] for there, run in groupby(points, lambda p: p[1] is not None) if there
    ]
    lines = "".join(f'<path class="line c{colour}" d="M{" L".join(f"{x} {y}" for x, y in run)}"/>' for run in runs if len(run) > 1)
    dotted = [point for run in runs for point in run if len(points) <= DOTS or len(run) == 1]
    return lines + "".join(f'<circle class="dot c{colour}" cx="{x}" cy="{y}" r="2.6"/>' for x, y in dotted)


def hovers(series: Sequence[Series], xs: Sequence[float], scale_x: Scale, scale_y: Scale, shown: Callable[[Any], str]) -> list[str]:
    """For each x (at most HOVERS of them) a strip that shows a rule and the values there while the mouse is over it."""
    step = max(1, math.ceil(len(xs) / HOVERS))
    chosen = xs[::step]
    lookup = [dict(one.points) for one in series]
    parts = []
    for place, x in enumerate(chosen):
        at = scale_x(x)
        left = LEFT if place == 0 else (at + scale_x(chosen[place - 1])) / 2
        right = WIDTH - RIGHT if place == len(chosen) - 1 else (at + scale_x(chosen[place + 1])) / 2
        rows = [
            (colour, one.name, known[x]) for colour, (one, known) in enumerate(zip(series, lookup, strict=True)) if known.get(x) is not None
        ]
        parts.append(
            f'<g class="at"><rect class="hit" x="{left:.1f}" y="0" width="{right - left:.1f}" height="{HEIGHT}"/>'
            f'<line class="rule" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>{tooltip(x, rows, at, shown)}</g>'
        )
    return parts


def tooltip(x: float, rows: Sequence[tuple[int, str, float | None]], at: float, shown: Callable[[Any], str]) -> str:
    lines = [(colour % COLOURS, f"{name} {shown(value)}" if name else shown(value)) for colour, name, value in rows]
    width = 16 + 6.2 * max([len(f"iteration {x:g}"), *(len(text) for _, text in lines)])
    left = at + 8 if at + 8 + width < WIDTH else at - 8 - width
    left = max(2.0, left)
    texts = "".join(
        f'<text class="tip c{colour}" x="{left + 8:.1f}" y="{TOP + 32 + 15 * place}">{escape(text)}</text>'
        for place, (colour, text) in enumerate(lines)
    )
    return (
        f'<rect class="box" x="{left:.1f}" y="{TOP + 2}" width="{width:.1f}" height="{24 + 15 * len(lines)}" rx="4"/>'
        f'<text class="tip head" x="{left + 8:.1f}" y="{TOP + 17}">iteration {x:g}</text>{texts}'
    )


def sparkline(values: Sequence[float | None], width: int = 96, height: int = 22) -> Markup:
    """A small line without axes, from the least to the greatest value."""
    known = [value for value in values if value is not None and not absent(value)]
    if len(known) < 2:
        return Markup("")
    scale_x, scale_y = Scale(0, len(values) - 1, 2, width - 4), Scale(min(known), max(known), height - 3, 3)
    points = [(place, value) for place, value in enumerate(values) if value is not None and not absent(value)]
    drawn = " L".join(f"{scale_x(place)} {scale_y(value)}" for place, value in points)
    last = points[-1]
    dot = f'<circle class="dot c0" cx="{scale_x(last[0])}" cy="{scale_y(last[1])}" r="2.2"/>'
    return canvas("spark", width, height, f'<path class="line c0" d="M{drawn}"/>{dot}')


def bar(share: float | None, css: str = "c0", width: int = 120, signed: bool = False) -> Markup:
    """A bar of a share: from the left, or for `signed` from the middle, to the right if positive."""
    value = 0.0 if share is None or absent(share) else max(-1.0, min(1.0, share))
    half = width / 2
    left, long = (half + min(0.0, value * half), abs(value) * half) if signed else (0.0, max(0.0, value) * width)
    centre = f'<line class="axis" x1="{half}" x2="{half}" y1="0" y2="10"/>' if signed else ""
    track = f'<rect class="track" width="{width}" height="10" rx="2"/>'
    fill = f'<rect class="fill {escape(css)}" x="{left:.1f}" width="{long:.1f}" height="10" rx="2"/>'
    return canvas("bar", width, 10, track + fill + centre)


def token_strip(weights: Sequence[float], logprobs: Sequence[float], advantage: float, largest: float) -> Markup:
    """One reply, token by token: blocks for weight x advantage (up: raised, down: lowered), a line for how sure the policy was."""
    count = max(len(weights), len(logprobs))
    if not count:
        return Markup("")
    parts, place = [], 0
    for weight, run in groupby(weights):
        long = len(list(run))
        effect = weight * advantage / largest if largest else 0.0
        high = round(11 * min(1.0, abs(effect)), 2)
        css, top = ("up", 12 - high) if effect >= 0 else ("down", 12)
        parts.append(f'<rect class="{css}" x="{place}" y="{top}" width="{long}" height="{high}"/>' if effect else "")
        place += long
    points = " ".join(f"{k + 0.5} {round(1 + min(22.0, -logprob * 5.5), 1)}" for k, logprob in enumerate(logprobs))
    return Markup(
        f'<svg class="strip" viewBox="0 0 {count} 24" preserveAspectRatio="none" aria-hidden="true">'
        f'<line class="axis" x1="0" x2="{count}" y1="12" y2="12"/>{"".join(parts)}<polyline class="sure" points="{points}"/></svg>'
    )
