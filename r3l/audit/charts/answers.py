"""A chart of an answer: numeric columns over another one, with a line per value of a third; over a text, bars."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from markupsafe import Markup, escape

from r3l.audit.charts.charts import COLOURS, Axes, Scale, Series, canvas, line_chart
from r3l.system.visible import visible

ALONG = ("iteration", "step", "turn", "pivot_turn", "place")  # what is likely to be meant as x
WIDTH, NAME, VALUE = 320, 110, 46  # pixels: of all, of the text before a bar, of the number behind it
HIGH, GAP = 12, 6
MOST = 30  # values of x that are drawn
LONGEST = 18  # characters of a text that fit


@dataclass(frozen=True, slots=True)
class AnswerChart:
    """What is drawn, and the columns that can be chosen instead."""

    x: str
    y: list[str]
    by: str
    columns: list[str]
    numbers: list[str]
    names: list[str]
    svg: Markup
    legend: list[str]
    left_out: int  # lines, or bars
    means: bool  # several rows stand at one place of a line: their mean is drawn


def answer_chart(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numeric: Sequence[bool],
    x: str = "",
    y: Sequence[str] = (),
    by: str = "",
) -> AnswerChart | None:
    """Return the chart that is asked for, or else a likely one; None where the answer has no number column, or a single
    column."""
    numbers = [name for name, number in zip(columns, numeric, strict=True) if number]
    names = [name for name in columns if name not in numbers]
    if not numbers or len(columns) < 2 or not rows:
        return None
    x = x if x in columns else likely_x(columns, rows, numbers, names)
    ys = [name for name in dict.fromkeys(y) if name in numbers] or [next(name for name in numbers if name != x)]
    by = by if by in names and by != x else "" if by == "-" or x in names else likely(columns, rows, names)
    lines: dict[str, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    at = {name: columns.index(name) for name in columns}
    for row in rows:
        for name in ys:
            if row[at[x]] is not None and row[at[name]] is not None:
                line = " · ".join([*([str(row[at[by]])] if by else []), *([name] if len(ys) > 1 else [])])
                lines[line][row[at[x]]].append(float(row[at[name]]))
    means = any(len(values) > 1 for points in lines.values() for values in points.values())
    drawn = {name[:40]: {at: fmean(values) for at, values in points.items()} for name, points in lines.items()}
    drawn = dict(list(drawn.items())[:COLOURS])
    left_out, label = max(0, len(lines) - COLOURS), f"{', '.join(ys)} by {x}"
    if x in numbers:
        series = [Series(name, sorted((float(at), y) for at, y in points.items())) for name, points in drawn.items()]
        svg = line_chart(series, Axes(", ".join(ys), x), label)
    else:
        svg, more = bar_chart(drawn, label)
        left_out += more
    legend = [name for name in drawn if name]
    return AnswerChart(x, ys, by, list(columns), numbers, names, svg, legend, left_out, means)


def likely_x(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[str], names: Sequence[str]
) -> str:
    """Name what is counted along, else a text that tells the rows apart or is all there is beside the number, else the
    first number."""
    along = [name for name in ALONG if name in numbers and len(numbers) > 1]
    telling = [name for name in names if len({str(row[columns.index(name)]) for row in rows}) == len(rows)]
    return [*along, *telling, *(names if len(numbers) < 2 else numbers)][0]


def likely(columns: Sequence[str], rows: Sequence[Sequence[Any]], names: Sequence[str]) -> str:
    """Find the first column of a few values, each in several rows."""
    for name in names:
        values = {str(row[columns.index(name)]) for row in rows}
        if 1 < len(values) <= COLOURS and len(values) < len(rows):
            return name
    return ""


def bar_chart(series: Mapping[str, Mapping[Any, float]], label: str) -> tuple[Markup, int]:
    """Return the bars of the first values of x, and how many values are left out."""
    names = list(dict.fromkeys(at for points in series.values() for at in points))
    values = [value for points in series.values() for value in points.values()]
    scale = Scale(min(0.0, *values), max(0.0, *values), NAME, WIDTH - VALUE)
    parts, top = [], GAP
    for at in names[:MOST]:
        text = visible(str(at))
        shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
        parts.append(f'<text class="tick y" x="{NAME - 6}" y="{top + HIGH - 2}">{escape(shown)}</text>')
        for place, (name, points) in enumerate(series.items()):
            if at in points:
                parts.append(drawn_bar(points[at], scale, top, place, f"{text} {visible(name)}".strip()))
            top += HIGH
        top += GAP
    parts.append(f'<line class="axis" x1="{scale(0)}" x2="{scale(0)}" y1="0" y2="{top}"/>')
    spoken = "; ".join(
        f"{visible(str(at))} {visible(name)} {points[at]:,.5g}".replace("  ", " ")
        for at in names[:MOST]
        for name, points in series.items()
        if at in points
    )
    return canvas("chart", WIDTH, top, "".join(parts), f"{label}: {spoken}"), max(0, len(names) - MOST)


def drawn_bar(value: float, scale: Scale, top: int, place: int, name: str) -> str:
    """Return a bar with its number behind it, and both in words under the mouse."""
    left, right = sorted((scale(0), scale(value)))
    return (
        f"<g><title>{escape(f'{name}: {value:,.5g}')}</title>"
        f'<rect class="fill c{place % COLOURS}" x="{left}" y="{top}" width="{max(right - left, 1):.1f}" '
        f'height="{HIGH - 2}"/><text class="value" x="{right + 4}" y="{top + HIGH - 3}">{value:,.5g}</text></g>'
    )
